//! The daemon's own directories, and the lock that keeps them to one daemon.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Between two looks at a lock that somebody holds.
const LOOK: Duration = Duration::from_millis(5);

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
        // For whoever comes second and wants to know who. The lock holds without it, also where
        // there is no room for five digits.
        if let Err(error) = write_pid(&file) {
            tracing::warn!(%error, path = %path.display(), "the daemon's pid could not be noted");
        }
        Ok(Self { _file: file })
    }

    /// The same once its holder has let go of everything, or [`PlaceError::InUse`] when the time is over.
    pub(crate) fn wait(state_dir: &Path, until: Instant) -> Result<Self, PlaceError> {
        let lock = loop {
            match Self::take(state_dir) {
                Err(PlaceError::InUse { .. }) if Instant::now() < until => std::thread::sleep(LOOK),
                taken => break taken?,
            }
        };
        // Those who make boxes lock the directory itself, and the kernel closes one descriptor of
        // a dead process after the other.
        while !is_unlocked(state_dir) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        Ok(lock)
    }
}

/// Over what is there, and only then shorter: on a full disk the file has its block already.
fn write_pid(file: &File) -> io::Result<()> {
    let line = format!("{}\n", std::process::id());
    file.write_all_at(line.as_bytes(), 0)?;
    file.set_len(line.len() as u64)
}

/// True also when it cannot be looked at; whoever locks it next says why.
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
    fn a_shorter_pid_leaves_nothing_of_a_longer_one() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("daemon.lock");
        fs::write(&path, "12345678901\n").expect("write");
        let _lock = StateLock::take(dir.path()).expect("free");
        let text = fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_lock_is_waited_for_until_its_holder_is_gone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let first = StateLock::take(dir.path()).expect("free");
        let soon = Instant::now() + Duration::from_millis(30);
        assert!(matches!(
            StateLock::wait(dir.path(), soon),
            Err(PlaceError::InUse { .. })
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
