//! What the machine under the suite is expected to give.
//!
//! Comes in: what a backend's tests know about their host. Goes out: answers to "is this expected
//! here". Never here: asking the backend, whose word is what the suite checks.

use boxwood_api::Mechanism;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    Root,
    /// An ordinary user; with more than one uid to give to a box, or with only its own.
    Rootless {
        subuids: bool,
    },
}

/// A mechanism that this host cannot give, and why. Written down by name beside the backend's
/// tests: an absence nobody wrote down is a failure.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    pub mechanism: Mechanism,
    pub why: &'static str,
}

#[derive(Clone, Debug)]
pub struct Host {
    pub privilege: Privilege,
    pub absent: Vec<Absence>,
    /// Whether `network: on` is expected to work.
    pub network: bool,
    /// Whether the kernel counts for each box (cgroups), so that an exit can name the limit it
    /// met. Without counters a limit may still hold, by other means.
    pub counters: bool,
}

impl Host {
    pub fn is_root(&self) -> bool {
        self.privilege == Privilege::Root
    }

    pub fn expects(&self, mechanism: Mechanism) -> bool {
        !self
            .absent
            .iter()
            .any(|absence| absence.mechanism == mechanism)
    }

    pub fn expected(&self) -> Vec<Mechanism> {
        Mechanism::ALL
            .into_iter()
            .filter(|mechanism| self.expects(*mechanism))
            .collect()
    }
}
