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

/// Something a backend may do without. None of these is a wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offer {
    /// File calls, done inside the box.
    Files,
    /// Mounts that join a running box.
    LiveMounts,
    /// Programs on a terminal of their own.
    Terminal,
    /// Roots other than the default one.
    Images,
    /// Directories and files of the host in a box.
    HostMounts,
    /// Files of a mount are the box's user's inside and their owner's outside.
    Owners,
    /// The kernel that the box is on is the host's own, which sees the box's processes, and whose
    /// own walls are what the cases try.
    HostsOwnKernel,
    /// Boxes outlive the daemon, and the next one takes them over.
    Adoption,
}

impl Offer {
    pub const ALL: [Self; 8] = [
        Self::Files,
        Self::LiveMounts,
        Self::Terminal,
        Self::Images,
        Self::HostMounts,
        Self::Owners,
        Self::HostsOwnKernel,
        Self::Adoption,
    ];

    /// As people say it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "file calls",
            Self::LiveMounts => "mounts into a running box",
            Self::Terminal => "terminals",
            Self::Images => "images",
            Self::HostMounts => "directories of the host",
            Self::Owners => "owners translated on the way into a box",
            Self::HostsOwnKernel => "the host's own kernel",
            Self::Adoption => "boxes that outlive the daemon",
        }
    }
}

/// What a backend does not offer, and why. Cases that need it are told apart from those that
/// passed.
#[derive(Clone, Copy, Debug)]
pub struct NotOffered {
    pub offer: Offer,
    pub why: &'static str,
}

/// What the default root is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootFrom {
    /// The host's own system, read-only, with areas that commands may install into on top.
    TheHost,
    /// An image, which is root's inside: only root installs into it.
    AnImage,
}

/// Where an image of this backend comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagesFrom {
    /// A directory of the host's is one.
    Directories,
    /// The backend keeps them under a name; what it has not got is imported first.
    Import,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact about the host, and none depends on another"
)]
pub struct Host {
    pub privilege: Privilege,
    pub absent: Vec<Absence>,
    pub not_offered: Vec<NotOffered>,
    /// Whether `network: on` is expected to work.
    pub network: bool,
    /// Whether the kernel counts for each box (cgroups), so that an exit can name the limit it
    /// met. Without counters a limit may still hold, by other means.
    pub counters: bool,
    /// Whether commands can be root inside (and there only).
    pub root_inside: bool,
    /// Whether a writable root is as large as whatever it lies on. `DiskQuota` is then absent from
    /// boxes with such a root, and in force in boxes with a read-only one.
    pub unbounded_writable_root: bool,
    /// Whether what the kernel counts for each user (inotify instances, pending signals) is counted
    /// for each box alone.
    pub own_counts: bool,
    pub root: RootFrom,
    pub images: ImagesFrom,
    /// How many boxes make a crowd: some start in a millisecond, some take a second.
    pub crowd: usize,
}

impl Host {
    /// Everything is there but a network and counters; the rest is for each backend to say.
    pub fn new(privilege: Privilege) -> Self {
        Self {
            privilege,
            absent: Vec::new(),
            not_offered: Vec::new(),
            network: false,
            counters: false,
            root_inside: privilege != Privilege::Rootless { subuids: false },
            unbounded_writable_root: false,
            own_counts: privilege == Privilege::Root,
            root: RootFrom::TheHost,
            images: ImagesFrom::Directories,
            crowd: 50,
        }
    }

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

    /// Whether a box that [`Wish::bounded`](super::Wish::bounded) asks for has a bound on every
    /// place that can be written.
    pub fn bounds_disks(&self) -> bool {
        self.expects(Mechanism::DiskQuota) || self.unbounded_writable_root
    }

    pub fn offers(&self, offer: Offer) -> bool {
        !self
            .not_offered
            .iter()
            .any(|missing| missing.offer == offer)
    }
}
