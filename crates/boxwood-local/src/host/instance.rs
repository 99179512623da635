//! The identity of this process among those that create boxes on this host.
//!
//! A daemon has a name in its state directory: the next daemon on the same directory finds its leftovers,
//! and two daemons never use one directory. A single command (`boxwood run`) is named by its pid.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use boxwood_backend::{StartError, start_step};
use rustix::fs::FlockOperation;

use crate::host::names::random_digits;
use crate::host::settings::{Kind, Settings};

const SINGLE: &str = "run-";
/// File with the daemon's name.
const NAME: &str = "instance";
const DIGITS: usize = 12;

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    /// Held for the lifetime of the daemon.
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
                let step = format!(
                    "store the instance name in `{}`",
                    settings.state_dir.display()
                );
                let name = name(&settings.state_dir).map_err(start_step(step))?;
                Ok(Self {
                    name,
                    _lock: Some(lock),
                })
            }
        }
    }
}

/// Returns true if no other host or container uses this name. Names of daemons are random; those of single
/// commands contain a pid, which other machines and containers have too.
pub fn is_globally_unique(name: &str) -> bool {
    !name.starts_with(SINGLE)
}

/// Returns true if `name` is that of a single command whose process is gone.
pub(crate) fn is_stale(name: &str) -> bool {
    let pid = name
        .strip_prefix(SINGLE)
        .and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

fn lock(state_dir: &Path) -> Result<File, StartError> {
    let step = |what: &str| start_step(format!("{what} `{}`", state_dir.display()));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(step("create"))?;
    // The lock is on the directory itself, so no lock file is left behind.
    let file = File::open(state_dir).map_err(step("open"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StartError::Unavailable {
            why: format!(
                "another daemon uses the state directory `{}`",
                state_dir.display()
            ),
            hint: "stop it, or use another directory with `--state-dir`".to_owned(),
        }),
        Err(errno) => Err(step("lock")(errno.into())),
    }
}

/// Twelve hex digits that survive restarts. Random rather than derived from the path: daemons in two
/// containers may have the same path and share an engine. The caller holds the lock.
fn name(state_dir: &Path) -> io::Result<String> {
    let path = state_dir.join(NAME);
    match fs::read_to_string(&path) {
        Ok(text) if is_name(text.trim_end()) => return Ok(text.trim_end().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let name = random_digits(DIGITS)?;
    if !is_name(&name) {
        return Err(io::Error::other(
            "failed to read a random name from the kernel",
        ));
    }
    // Renamed into place, so that the file is never incomplete.
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
    fn a_daemon_keeps_its_name_and_does_not_share_it() {
        let (one, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (one, other) = (one.expect("a directory"), other.expect("a directory"));
        let first = name(one.path()).expect("a name");
        assert!(is_name(&first) && is_globally_unique(&first));
        assert_eq!(name(one.path()).expect("the same"), first);
        assert_ne!(name(other.path()).expect("another"), first);
        // An incomplete file is replaced.
        fs::write(one.path().join(NAME), "12").expect("write");
        assert!(is_name(&name(one.path()).expect("a new one")));
        assert!(!is_globally_unique("run-1"));
    }
}
