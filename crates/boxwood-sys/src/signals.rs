//! Signal handling of init: a descriptor for `SIGCHLD`, default and ignored signals.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Blocks `SIGCHLD` for this thread and returns a descriptor that is readable when one is pending.
pub fn child_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set, the other calls read it; the returned descriptor is new and
    // has no other owner.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}

/// Resets all signals to their default actions. An ignored signal would stay ignored in every child program.
pub fn reset_all() -> io::Result<()> {
    // The kernel's layout: handler, flags, restorer, mask. All zero is the default action.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: the pointer is to a zeroed kernel_sigaction that outlives the call. A raw call, because the
        // C library refuses to change the signals that it reserves for itself.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null_mut::<libc::c_void>(),
                size_of::<u64>(),
            )
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Ignores this signal here and in all child programs.
pub fn ignore(signal: i32) -> io::Result<()> {
    set(signal, libc::SIG_IGN)
}

/// Restores the default action of this signal.
pub fn reset(signal: i32) -> io::Result<()> {
    set(signal, libc::SIG_DFL)
}

fn set(signal: i32, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: SIG_IGN and SIG_DFL are valid dispositions; no handler is involved.
    if unsafe { libc::signal(signal, action) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Reads all pending signals. One may stand for several children.
pub fn drain(signals: BorrowedFd<'_>) {
    let mut buffer = [0_u8; 128 * 4];
    while matches!(rustix::io::read(signals, &mut buffer), Ok(1..)) {}
}
