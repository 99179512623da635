//! A descriptor held in reserve for accepting, and refusing, connections when none are left.
//!
//! Without it such a connection stays in the backlog, the listener stays readable, and the client
//! gets no response.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

pub(crate) struct SpareDescriptor {
    spare: Mutex<Option<File>>,
}

impl SpareDescriptor {
    pub(crate) fn new() -> Self {
        Self {
            spare: Mutex::new(open_spare()),
        }
    }

    /// Whether accepting failed because the process or the system has no descriptors left.
    pub(crate) fn is_exhausted(error: &io::Error) -> bool {
        let error = Errno::from_io_error(error);
        matches!(error, Some(Errno::MFILE | Errno::NFILE))
    }

    /// Reopens the descriptor if that failed after its last use.
    pub(crate) fn refill(&self) {
        let mut spare = self.lock();
        if spare.is_none() {
            *spare = open_spare();
        }
    }

    /// Runs `work` with the descriptor released, then reopens it.
    pub(crate) fn with_released<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut spare = self.lock();
        drop(spare.take());
        let done = work();
        *spare = open_spare();
        done
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` if another thread has taken the last descriptor.
fn open_spare() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_reopened_after_use() {
        let spare = SpareDescriptor::new();
        assert!(spare.lock().is_some());
        let opened = spare.with_released(|| File::open("/dev/null").is_ok());
        assert!(opened);
        assert!(spare.lock().is_some());
    }

    #[test]
    fn refill_reopens_a_missing_descriptor() {
        let spare = SpareDescriptor {
            spare: Mutex::new(None),
        };
        spare.refill();
        assert!(spare.lock().is_some());
    }

    #[test]
    fn only_emfile_and_enfile_count_as_exhaustion() {
        let is_exhausted = |errno: Errno| {
            SpareDescriptor::is_exhausted(&io::Error::from_raw_os_error(errno.raw_os_error()))
        };
        assert!(is_exhausted(Errno::MFILE));
        assert!(is_exhausted(Errno::NFILE));
        assert!(!is_exhausted(Errno::CONNABORTED));
        assert!(!SpareDescriptor::is_exhausted(&io::Error::other(
            "something else"
        )));
    }
}
