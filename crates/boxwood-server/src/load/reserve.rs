//! One descriptor kept for the moment when there are none.
//!
//! Without it a connection that cannot be accepted stays in the queue, the listener stays readable,
//! and its client waits for an answer that nobody can give.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct Reserve {
    kept: Mutex<Option<File>>,
}

impl Reserve {
    pub(crate) fn new() -> Self {
        Self {
            kept: Mutex::new(spare()),
        }
    }

    /// Whether it was for lack of descriptors that a connection could not be accepted.
    pub(crate) fn is_for(error: &io::Error) -> bool {
        let code = error
            .raw_os_error()
            .map(rustix::io::Errno::from_raw_os_error);
        matches!(
            code,
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
        )
    }

    /// Takes one again before anybody else does, if somebody was quicker the last time.
    pub(crate) fn refill(&self) {
        let mut kept = self.lock();
        if kept.is_none() {
            *kept = spare();
        }
    }

    /// Does something that needs one descriptor and gives it back.
    pub(crate) fn lend<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut kept = self.lock();
        drop(kept.take());
        let done = work();
        *kept = spare();
        done
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` when somebody was quicker.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_there_again_afterwards() {
        let reserve = Reserve::new();
        assert!(reserve.lock().is_some());
        let opened = reserve.lend(|| File::open("/dev/null").is_ok());
        assert!(opened);
        assert!(reserve.lock().is_some());
    }

    #[test]
    fn what_somebody_else_took_is_taken_again() {
        let reserve = Reserve {
            kept: Mutex::new(None),
        };
        reserve.refill();
        assert!(reserve.lock().is_some());
    }

    #[test]
    fn only_a_lack_of_descriptors_is_a_lack_of_descriptors() {
        let is_for = |errno: rustix::io::Errno| {
            Reserve::is_for(&io::Error::from_raw_os_error(errno.raw_os_error()))
        };
        assert!(is_for(rustix::io::Errno::MFILE));
        assert!(is_for(rustix::io::Errno::NFILE));
        assert!(!is_for(rustix::io::Errno::CONNABORTED));
        assert!(!Reserve::is_for(&io::Error::other("something else")));
    }
}
