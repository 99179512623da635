//! What a container says about itself, and whose it is.
//!
//! The seed's labels stay, so that its operators' scripts still find boxes; ours say which daemon made
//! the box, in which of its lives, and how to tell whether that life is over.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use boxwood_policy::AdmittedSpec;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

pub(crate) const INSTANCE: &str = "boxwood.instance";
/// What the name of every container of ours begins with.
pub(crate) const NAME_PREFIX: &str = "langbot-box-";
const INCARNATION: &str = "boxwood.incarnation";
const CONFIG: &str = "boxwood.config";
const LEASE: &str = "boxwood.lease";

/// This daemon, in this life.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) instance: String,
    incarnation: String,
    lease: Lease,
}

/// Until when a box has somebody: as long as a certain process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    boot: String,
    /// Process numbers mean something only in their own namespace.
    pid_namespace: String,
    pid: u32,
    /// In clock ticks since the boot: numbers are used again, this is not.
    started: u64,
}

impl Owner {
    pub(crate) fn this_process(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            // Failing leaves zeros: the lease still tells lives apart.
            incarnation: format!("{:016x}", getrandom::u64().unwrap_or_default()),
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
            (INCARNATION, &self.incarnation),
            (CONFIG, &hash),
            (LEASE, &self.lease.to_text()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// Whether the box with these labels, which was not adopted, has nobody any more. What another daemon
    /// made and cannot be judged from here (another machine, another process namespace) has somebody; an
    /// earlier life of ours has not, wherever it was. A box of another daemon's that still runs waits for
    /// that daemon to come back, and ends by itself when it does not.
    pub(crate) fn is_orphan(&self, labels: &BTreeMap<String, String>, state: State) -> bool {
        let Some(instance) = labels.get(INSTANCE) else {
            return false;
        };
        let ours = *instance == self.instance;
        if ours && labels.get(INCARNATION) == Some(&self.incarnation) {
            return false;
        }
        let Some(lease) = labels.get(LEASE).and_then(|text| Lease::parse(text)) else {
            return false;
        };
        match lease.standing(&self.lease) {
            // Even under our own name: one process may have two backends on one engine.
            Standing::Held => false,
            Standing::Over => ours || state == State::Ended,
            Standing::Unknown => ours && boxwood_local::is_nobody_elses(instance),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Ended,
}

/// What can be said of a lease from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
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
            started: started(pid).unwrap_or_default(),
        }
    }

    fn to_text(&self) -> String {
        let Self {
            boot,
            pid_namespace,
            pid,
            started,
        } = self;
        format!("{boot}/{pid_namespace}/{pid}/{started}")
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

    /// As seen by the holder of `ours`.
    fn standing(&self, ours: &Self) -> Standing {
        let comparable = !self.boot.is_empty()
            && self.started != 0
            && self.boot == ours.boot
            && self.pid_namespace == ours.pid_namespace;
        if !comparable {
            return Standing::Unknown;
        }
        match started(self.pid) {
            Some(now) if now == self.started => Standing::Held,
            None if is_hidden(self.pid) => Standing::Held,
            _ => Standing::Over,
        }
    }
}

/// Whether there is a process that `/proc` does not show us: some hosts hide those of other users.
fn is_hidden(pid: u32) -> bool {
    let shown = Path::new("/proc").join(pid.to_string()).exists();
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    !shown && pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

/// When a process began; `None` when there is none, or only its remains.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The name is in parentheses and may contain anything; the rest is plain.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A name as the seed makes them: readable, unique, and nothing in it that an engine could stumble on.
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
            (INCARNATION.to_owned(), owner.incarnation.clone()),
            (LEASE.to_owned(), owner.lease.to_text()),
        ])
    }

    #[test]
    fn a_box_is_an_orphan_only_when_its_maker_is_surely_gone() {
        let us = Owner::this_process("us");
        assert!(!us.is_orphan(&of(&us), State::Running));
        // Another backend of ours, on the same engine under another name.
        let mut earlier = us.clone();
        earlier.incarnation = "0".to_owned();
        assert!(!us.is_orphan(&of(&earlier), State::Running));
        // An earlier life of ours: here, before a restart of the machine, in another container.
        earlier.lease.started += 1;
        assert!(us.is_orphan(&of(&earlier), State::Running));
        earlier.lease.boot = "before".to_owned();
        assert!(us.is_orphan(&of(&earlier), State::Running));
        earlier.lease = us.lease.clone();
        earlier.lease.pid_namespace = "1".to_owned();
        assert!(us.is_orphan(&of(&earlier), State::Running));
        // Another daemon that lives: this very process is proof of that.
        let mut other = us.clone();
        other.instance = "other".to_owned();
        assert!(!us.is_orphan(&of(&other), State::Running));
        // The same number, another process: its boxes wait for it as long as they run.
        other.lease.started += 1;
        assert!(!us.is_orphan(&of(&other), State::Running));
        assert!(us.is_orphan(&of(&other), State::Ended));
        // On another machine, or counted elsewhere: not ours to judge.
        other.lease.boot = "elsewhere".to_owned();
        assert!(!us.is_orphan(&of(&other), State::Running));
        other.lease.boot = us.lease.boot.clone();
        other.lease.pid_namespace = "1".to_owned();
        assert!(!us.is_orphan(&of(&other), State::Running));
        // Single commands are called by a number that others have elsewhere.
        let single = Owner::this_process("run-7");
        let mut namesake = Owner::this_process("run-7");
        namesake.lease.pid_namespace = "1".to_owned();
        assert!(!single.is_orphan(&of(&namesake), State::Running));
        // One that does not know when it began has promised nothing.
        other = us.clone();
        other.instance = "other".to_owned();
        other.lease.started = 0;
        assert!(!us.is_orphan(&of(&other), State::Running));
        // The seed's own.
        let seed = BTreeMap::from([("langbot.box".to_owned(), "true".to_owned())]);
        assert!(!us.is_orphan(&seed, State::Ended));
        let garbled = BTreeMap::from([
            (INSTANCE.to_owned(), "x".to_owned()),
            (LEASE.to_owned(), "a/b".to_owned()),
        ]);
        assert!(!us.is_orphan(&garbled, State::Ended));
    }

    proptest::proptest! {
        #[test]
        fn names_are_names_to_every_engine(session in ".{0,300}") {
            let name = container_name(&session).expect("random bytes");
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
            assert!(name.starts_with("langbot-box-") && name.chars().all(fits));
            assert!(name.len() <= 64);
        }
    }
}
