//! What a service manager hands to a program it starts: descriptors and variables.
//!
//! Comes in: how many descriptors, which names. Goes out: owned descriptors, and an environment
//! without the names. Never here: reading variables, or judging what a descriptor is.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Behind standard input, output and error.
const FIRST: RawFd = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The descriptors that this program was started with, from the fourth on, close-on-exec from now on.
/// Asked a second time it says no: they have an owner then.
///
/// Call it before anything else opens a file: what is open under these numbers is taken for inherited.
pub fn descriptors(count: usize) -> io::Result<Vec<OwnedFd>> {
    let end = RawFd::try_from(count)
        .ok()
        .and_then(|count| FIRST.checked_add(count))
        .ok_or(io::ErrorKind::InvalidInput)?;
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::Error::other("they were taken before"));
    }
    let taken = || io::Error::other("one of them is not open");
    // All of them or none: looked at first, owned afterwards.
    for number in FIRST..end {
        // SAFETY: borrowed for this call only, and a number that is not open is an error of it.
        let looked_at = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let flags = fcntl_getfd(looked_at).map_err(|_| taken())?;
        fcntl_setfd(looked_at, flags | FdFlags::CLOEXEC)?;
    }
    // SAFETY: each is open, this happens once in the life of the process, and by the contract above
    // nobody here has opened them.
    let own = |number| unsafe { OwnedFd::from_raw_fd(number) };
    Ok((FIRST..end).map(own).collect())
}

/// Takes variables out of the environment, so that no program started later gets them. Refused once
/// there is a second thread, which might be reading.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no thread to race with, which is looked at first"
)]
pub fn remove_variables(names: &[&str]) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has several threads"));
    }
    for name in names {
        // SAFETY: there is no other thread, as was just seen, and this one does not start any.
        unsafe { std::env::remove_var(name) };
    }
    Ok(())
}
