//! The daemon's own directories, and the lock that keeps them to one daemon.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Creates a directory, and those above it, for nobody else to look into.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("the directory `{}` could not be created", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("the state directory `{}` could not be locked", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("another daemon{} is using the state directory `{}`", pid_words(pid.as_deref()), path.display())]
    InUse { path: PathBuf, pid: Option<String> },
}

fn pid_words(pid: Option<&str>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Held for the life of the daemon. The kernel lets go of it however the daemon ends.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

impl StateLock {
    pub(crate) fn take(state_dir: &Path) -> Result<Self, PlaceError> {
        private_dir(state_dir).map_err(|source| PlaceError::Create {
            path: state_dir.to_owned(),
            source,
        })?;
        let path = state_dir.join("daemon.lock");
        let failed = |source| PlaceError::Lock {
            path: state_dir.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = fs::read_to_string(&path)
                    .ok()
                    .map(|text| text.trim().to_owned())
                    .filter(|pid| !pid.is_empty());
                return Err(PlaceError::InUse {
                    path: state_dir.to_owned(),
                    pid,
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_has_one_daemon() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let state_dir = dir.path().join("deep/state");
        let first = StateLock::take(&state_dir).expect("free");
        let error = StateLock::take(&state_dir).expect_err("taken").to_string();
        assert!(
            error.contains(&format!("pid {}", std::process::id())),
            "{error}"
        );
        drop(first);
        StateLock::take(&state_dir).expect("free again");
    }
}
