//! Names and labels of containers, and the decision which containers are orphaned.
//!
//! Containers keep the labels of LangBot Box, so that existing scripts find them. Further labels identify
//! the instance, the run of its daemon, and the daemon's process: while it runs, the container is kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use boxwood_policy::AdmittedSpec;
use boxwood_sys::procfs::start_time;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

pub(crate) const INSTANCE: &str = "boxwood.instance";
/// Prefix of the names of our containers.
pub(crate) const NAME_PREFIX: &str = "langbot-box-";
/// The run of the daemon, despite its name: not the incarnation of a session.
const RUN: &str = "boxwood.incarnation";
const CONFIG: &str = "boxwood.config";
const LEASE: &str = "boxwood.lease";

/// This daemon and this run of it.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) instance: String,
    run_id: String,
    lease: Lease,
}

/// A box is in use as long as this process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    boot: String,
    /// Pids are only meaningful within their namespace.
    pid_namespace: String,
    pid: u32,
    /// Start time in clock ticks since boot, because pids are reused.
    started: u64,
}

impl Owner {
    pub(crate) fn this_process(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            // On error all zeros: the lease still distinguishes runs.
            run_id: format!("{:016x}", getrandom::u64().unwrap_or_default()),
            lease: Lease::this_process(),
        }
    }

    pub(crate) fn labels(&self, spec: &AdmittedSpec) -> Vec<(String, String)> {
        let hash = spec.config_hash();
        [
            ("langbot.box", "true"),
            ("langbot.session_id", spec.session().as_str()),
            ("langbot.box.instance_id", &self.instance),
            ("langbot.box.config_hash", &hash),
            (INSTANCE, &self.instance),
            (RUN, &self.run_id),
            (CONFIG, &hash),
            (LEASE, &self.lease.to_text()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// Returns true if the box with these labels, which was not adopted, is not used any more. A box of
    /// another daemon whose process cannot be checked (on another machine or in another PID namespace)
    /// counts as used; a box of an earlier run of this daemon does not. A running box of another daemon
    /// waits for that daemon to return, and exits by itself if it does not.
    pub(crate) fn is_orphan(&self, labels: &BTreeMap<String, String>, state: State) -> bool {
        let Some(instance) = labels.get(INSTANCE) else {
            return false;
        };
        let is_own = *instance == self.instance;
        if is_own && labels.get(RUN) == Some(&self.run_id) {
            return false;
        }
        let Some(lease) = labels.get(LEASE).and_then(|text| Lease::parse(text)) else {
            return false;
        };
        match lease.state(&self.lease) {
            // Even with our own instance name: one process may have two backends on one engine.
            LeaseState::Held => false,
            LeaseState::Over => is_own || state == State::Ended,
            LeaseState::Unknown => is_own && boxwood_local::is_globally_unique(instance),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Ended,
}

/// Whether the process of a lease is running, as far as can be checked from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseState {
    Held,
    Over,
    Unknown,
}

impl Lease {
    fn this_process() -> Self {
        let pid = std::process::id();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            boot: boot.trim().to_owned(),
            pid_namespace: digits(&namespace.to_string_lossy()),
            pid,
            started: start_time(pid).unwrap_or_default(),
        }
    }

    fn to_text(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            self.boot, self.pid_namespace, self.pid, self.started
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('/').collect();
        let [boot, pid_namespace, pid, started] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            boot: (*boot).to_owned(),
            pid_namespace: (*pid_namespace).to_owned(),
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }

    /// `own` is the lease of the calling process.
    fn state(&self, own: &Self) -> LeaseState {
        let comparable = !self.boot.is_empty()
            && self.started != 0
            && self.boot == own.boot
            && self.pid_namespace == own.pid_namespace;
        if !comparable {
            return LeaseState::Unknown;
        }
        match start_time(self.pid) {
            Some(now) if now == self.started => LeaseState::Held,
            None if is_hidden(self.pid) => LeaseState::Held,
            _ => LeaseState::Over,
        }
    }
}

/// Returns true if a process exists that `/proc` does not show: some hosts hide processes of other users.
fn is_hidden(pid: u32) -> bool {
    let shown = Path::new("/proc").join(pid.to_string()).exists();
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    !shown && pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

/// A name in the format of LangBot Box: readable, unique, and valid for every engine.
pub(crate) fn container_name(session: &str) -> std::io::Result<String> {
    let mut plain = String::new();
    for letter in session.chars() {
        match letter {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '.' => {
                plain.push(letter.to_ascii_lowercase());
            }
            _ if plain.ends_with('-') || plain.is_empty() => {}
            _ => plain.push('-'),
        }
    }
    let plain: String = plain.chars().take(32).collect();
    let plain = match plain.trim_matches('-') {
        "" => "session",
        plain => plain,
    };
    let unique = getrandom::u64().map_err(std::io::Error::other)?;
    Ok(format!("{NAME_PREFIX}{plain}-{unique:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(owner: &Owner) -> BTreeMap<String, String> {
        BTreeMap::from([
            (INSTANCE.to_owned(), owner.instance.clone()),
            (RUN.to_owned(), owner.run_id.clone()),
            (LEASE.to_owned(), owner.lease.to_text()),
        ])
    }

    #[test]
    fn a_box_is_orphaned_only_if_its_daemon_is_certainly_gone() {
        let us = Owner::this_process("us");
        assert!(!us.is_orphan(&of(&us), State::Running));
        // Another backend of this process on the same engine.
        let mut earlier = us.clone();
        earlier.run_id = "0".to_owned();
        assert!(!us.is_orphan(&of(&earlier), State::Running));
        // An earlier run: on this machine, before a reboot, in another container.
        earlier.lease.started += 1;
        assert!(us.is_orphan(&of(&earlier), State::Running));
        earlier.lease.boot = "before".to_owned();
        assert!(us.is_orphan(&of(&earlier), State::Running));
        earlier.lease = us.lease.clone();
        earlier.lease.pid_namespace = "1".to_owned();
        assert!(us.is_orphan(&of(&earlier), State::Running));
        // Another daemon whose process is running.
        let mut other = us.clone();
        other.instance = "other".to_owned();
        assert!(!us.is_orphan(&of(&other), State::Running));
        // The same pid, another process: its boxes wait for the daemon while they run.
        other.lease.started += 1;
        assert!(!us.is_orphan(&of(&other), State::Running));
        assert!(us.is_orphan(&of(&other), State::Ended));
        // On another machine or in another PID namespace: cannot be checked.
        other.lease.boot = "remote".to_owned();
        assert!(!us.is_orphan(&of(&other), State::Running));
        other.lease.boot = us.lease.boot.clone();
        other.lease.pid_namespace = "1".to_owned();
        assert!(!us.is_orphan(&of(&other), State::Running));
        // Single commands are named by a pid, which also exists in other namespaces.
        let single = Owner::this_process("run-7");
        let mut namesake = Owner::this_process("run-7");
        namesake.lease.pid_namespace = "1".to_owned();
        assert!(!single.is_orphan(&of(&namesake), State::Running));
        // A lease without a start time cannot be checked.
        other = us.clone();
        other.instance = "other".to_owned();
        other.lease.started = 0;
        assert!(!us.is_orphan(&of(&other), State::Running));
        // A container of LangBot Box.
        let langbot = BTreeMap::from([("langbot.box".to_owned(), "true".to_owned())]);
        assert!(!us.is_orphan(&langbot, State::Ended));
        let garbled = BTreeMap::from([
            (INSTANCE.to_owned(), "x".to_owned()),
            (LEASE.to_owned(), "a/b".to_owned()),
        ]);
        assert!(!us.is_orphan(&garbled, State::Ended));
    }

    proptest::proptest! {
        #[test]
        fn names_are_valid_for_every_engine(session in ".{0,300}") {
            let name = container_name(&session).expect("random bytes");
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
            assert!(name.starts_with("langbot-box-") && name.chars().all(fits));
            assert!(name.len() <= 64);
        }
    }
}
