//! The state directory and the lock that allows only one daemon on it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const LOCK_POLL: Duration = Duration::from_millis(5);

/// Creates a directory and its parents with mode 0700.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("failed to create the directory `{}`", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("failed to lock the state directory `{}`", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("another daemon{} is using the state directory `{}`", pid_suffix(*pid), path.display())]
    InUse { path: PathBuf, pid: Option<u32> },
}

pub(crate) fn pid_suffix(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Held for the lifetime of the daemon. The kernel releases it when the process exits.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

impl StateLock {
    pub(crate) fn take(state_dir: &Path) -> Result<Self, StateDirError> {
        private_dir(state_dir).map_err(|source| StateDirError::Create {
            path: state_dir.to_owned(),
            source,
        })?;
        let path = state_dir.join("daemon.lock");
        let failed = |source| StateDirError::Lock {
            path: state_dir.to_owned(),
            source,
        };
        let file = OpenOptions::new()
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
                let pid = fs::read_to_string(&path).ok();
                return Err(StateDirError::InUse {
                    path: state_dir.to_owned(),
                    pid: pid.and_then(|pid| pid.trim().parse().ok()),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // Only for the error message of a second daemon, so a full disk must not fail the start.
        if let Err(error) = write_pid(&file) {
            tracing::warn!(%error, path = %path.display(), "failed to write the daemon's pid to its lock file");
        }
        Ok(Self { _file: file })
    }

    /// Waits until the current holder has exited; [`StateDirError::InUse`] after the deadline.
    pub(crate) fn wait(state_dir: &Path, until: Instant) -> Result<Self, StateDirError> {
        let lock = loop {
            match Self::take(state_dir) {
                Err(StateDirError::InUse { .. }) if Instant::now() < until => {
                    std::thread::sleep(LOCK_POLL);
                }
                taken => break taken?,
            }
        };
        // The process that creates boxes locks the directory itself, and may release it later than
        // the daemon releases its lock file.
        while !is_unlocked(state_dir) && Instant::now() < until {
            std::thread::sleep(LOCK_POLL);
        }
        Ok(lock)
    }
}

/// Overwrites before truncating: on a full disk the existing block can still be written.
fn write_pid(file: &File) -> io::Result<()> {
    let line = format!("{}\n", std::process::id());
    file.write_all_at(line.as_bytes(), 0)?;
    file.set_len(line.len() as u64)
}

/// Also true if the directory cannot be opened: the next attempt to lock it reports the error.
fn is_unlocked(directory: &Path) -> bool {
    let Ok(file) = File::open(directory) else {
        return true;
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
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

    #[test]
    fn a_shorter_pid_overwrites_a_longer_one() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("daemon.lock");
        fs::write(&path, "12345678901\n").expect("write");
        let _lock = StateLock::take(dir.path()).expect("free");
        let text = fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn waiting_ends_when_the_holder_has_released_the_lock() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let first = StateLock::take(dir.path()).expect("free");
        let soon = Instant::now() + Duration::from_millis(30);
        assert!(matches!(
            StateLock::wait(dir.path(), soon),
            Err(StateDirError::InUse { .. })
        ));
        let boxes = File::open(dir.path()).expect("open");
        flock(&boxes, FlockOperation::LockExclusive).expect("locked");
        let began = Instant::now();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(first);
            std::thread::sleep(Duration::from_millis(50));
            drop(boxes);
        });
        let until = Instant::now() + Duration::from_secs(10);
        StateLock::wait(dir.path(), until).expect("free in the end");
        assert!(began.elapsed() >= Duration::from_millis(100));
        ending.join().expect("ended");
    }
}
