//! Who this process is among those that make boxes on this host.
//!
//! A daemon is known by a name in its state directory: the next one on the same directory finds what a
//! killed one left, and two never run at once. A single command (`boxwood run`) is known by its pid,
//! beside any daemon and any number of its like.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use boxwood_backend::StartError;
use rustix::fs::FlockOperation;

use crate::settings::{Kind, Settings};

const SINGLE: &str = "run-";
/// Where a daemon's name is kept.
const NAME: &str = "instance";
const DIGITS: usize = 12;

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    /// Held for as long as the daemon lives.
    _lock: Option<File>,
}

impl Instance {
    pub(crate) fn claim(settings: &Settings) -> Result<Self, StartError> {
        match settings.kind {
            Kind::Single => Ok(Self {
                name: format!("{SINGLE}{}", std::process::id()),
                _lock: None,
            }),
            Kind::Daemon => {
                let lock = lock(&settings.state_dir)?;
                let name = name(&settings.state_dir).map_err(|source| StartError::Step {
                    step: format!("keep a name in `{}`", settings.state_dir.display()),
                    source,
                })?;
                Ok(Self {
                    name,
                    _lock: Some(lock),
                })
            }
        }
    }
}

/// Whether nobody else, anywhere, is called so while its holder is: a daemon's name is random, that of a
/// single command a number that every machine and every container has.
pub fn is_nobody_elses(name: &str) -> bool {
    !name.starts_with(SINGLE)
}

/// Whether `name` is that of a single command that has ended without clearing up.
pub(crate) fn is_stale(name: &str) -> bool {
    let pid = name
        .strip_prefix(SINGLE)
        .and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

fn lock(state_dir: &Path) -> Result<File, StartError> {
    let step = |what: &str| {
        let step = format!("{what} `{}`", state_dir.display());
        move |source: io::Error| StartError::Step { step, source }
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(step("make"))?;
    // The directory itself: nothing to leave behind.
    let file = File::open(state_dir).map_err(step("open"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StartError::Unavailable {
            why: format!(
                "another daemon uses the state directory `{}`",
                state_dir.display()
            ),
            hint: "stop it, or give this one a directory of its own with `--state-dir`".to_owned(),
        }),
        Err(errno) => Err(step("lock")(errno.into())),
    }
}

/// Twelve hex digits, the same after a restart. Not made from the directory's path: daemons in two
/// containers have the same one, and may share an engine and a host. Needs the lock.
fn name(state_dir: &Path) -> io::Result<String> {
    let path = state_dir.join(NAME);
    match fs::read_to_string(&path) {
        Ok(text) if is_name(text.trim_end()) => return Ok(text.trim_end().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let name: String = random
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(DIGITS)
        .collect();
    if !is_name(&name) {
        return Err(io::Error::other("the kernel gave no random name"));
    }
    // Whole or not at all.
    let new = state_dir.join(format!("{NAME}.new"));
    fs::write(&new, format!("{name}\n"))?;
    fs::rename(&new, &path)?;
    Ok(name)
}

fn is_name(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_keeps_its_name_and_shares_it_with_nobody() {
        let (one, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (one, other) = (one.expect("a directory"), other.expect("a directory"));
        let first = name(one.path()).expect("a name");
        assert!(is_name(&first) && is_nobody_elses(&first));
        assert_eq!(name(one.path()).expect("the same"), first);
        assert_ne!(name(other.path()).expect("another"), first);
        // What was half written is written again.
        fs::write(one.path().join(NAME), "12").expect("write");
        assert!(is_name(&name(one.path()).expect("a new one")));
        assert!(!is_nobody_elses("run-1"));
    }
}
