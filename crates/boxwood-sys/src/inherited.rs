//! Descriptors and variables that a service manager passes to a program.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The first descriptor after stdin, stdout and stderr.
const FIRST: RawFd = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes ownership of the descriptors that this program was started with, from 3 on, and sets close-on-exec.
/// Fails on a second call.
///
/// Call it before opening any file: all open descriptors with these numbers are taken for inherited ones.
pub fn descriptors(count: usize) -> io::Result<Vec<OwnedFd>> {
    let end = RawFd::try_from(count)
        .ok()
        .and_then(|count| FIRST.checked_add(count))
        .ok_or(io::ErrorKind::InvalidInput)?;
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::Error::other(
            "the inherited descriptors were already taken",
        ));
    }
    let not_open = || io::Error::other("an inherited descriptor is not open");
    // Check all of them before taking ownership.
    for number in FIRST..end {
        // SAFETY: borrowed for this call only; a descriptor that is not open is an error.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let flags = fcntl_getfd(descriptor).map_err(|_| not_open())?;
        fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC)?;
    }
    // SAFETY: each is open, this happens once per process, and by the contract above no other code opened
    // them.
    let own = |number| unsafe { OwnedFd::from_raw_fd(number) };
    Ok((FIRST..end).map(own).collect())
}

/// Removes variables from the environment, so that child processes do not inherit them. Fails if the
/// process has more than one thread, because another one might read the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the process is checked to have a single thread"
)]
pub fn remove_variables(names: &[&str]) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has several threads"));
    }
    for name in names {
        // SAFETY: the check above found no other thread, and this one does not start any.
        unsafe { std::env::remove_var(name) };
    }
    Ok(())
}
