//! One file tool, done by a fork of init that has become a command.
//!
//! Comes in: an order in a file in memory. Goes out: its outcome, into a pipe. The fork alone has
//! threads, and alone holds what it reads: init keeps one thread and little memory.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::Identity;
use boxwood_init::file_tools::{self, LARGEST_TEXT, ToolFailure, ToolFault, ToolOrder};
use boxwood_sys::clone::{self, exit_now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::files::become_command;
use crate::supervise::close_all_but;

/// An edit carries two texts.
const LARGEST_ORDER: usize = 2 * LARGEST_TEXT + 64 * 1024;

pub(crate) fn start(
    order: BorrowedFd<'_>,
    answer: BorrowedFd<'_>,
    identity: Identity,
) -> io::Result<i32> {
    // SAFETY: init has one thread.
    if let Some(pid) = unsafe { clone::plain_fork() }? {
        return Ok(pid);
    }
    let copies = [order, answer].map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 10));
    let [Ok(order), Ok(answer)] = copies else {
        exit_now(1)
    };
    close_all_but(&[&order, &answer]);
    if become_command(identity).is_err() {
        exit_now(1);
    }
    let outcome = match read(&order) {
        Ok(order) => file_tools::run(order, &|| is_wanted(answer.as_fd())),
        Err(text) => Err(ToolFailure {
            fault: ToolFault::TooLarge,
            text,
        }),
    };
    let Ok(bytes) = postcard::to_stdvec(&outcome) else {
        exit_now(1)
    };
    let sent = std::fs::File::from(answer).write_all(&bytes);
    exit_now(i32::from(sent.is_err()))
}

/// By position: the sender's offset is shared and stands at the end.
fn read(order: &OwnedFd) -> Result<ToolOrder, String> {
    let failed = |errno: Errno| format!("The order could not be read: {errno}");
    let size = rustix::fs::fstat(order).map_err(failed)?.st_size;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > LARGEST_ORDER {
        return Err(format!(
            "The texts have {size} bytes; at most {LARGEST_TEXT} are handled in one call."
        ));
    }
    let mut bytes = vec![0_u8; size];
    let mut at = 0;
    while at < size {
        match rustix::io::pread(order, &mut bytes[at..], at as u64) {
            Ok(0) => break,
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    postcard::from_bytes(&bytes).map_err(|_| "The order could not be understood".to_owned())
}

/// Whoever asked holds the other end of the pipe until there is an answer.
fn is_wanted(answer: BorrowedFd<'_>) -> bool {
    let mut look = [PollFd::from_borrowed_fd(answer, PollFlags::empty())];
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let looked = poll(&mut look, Some(&moment));
    looked.is_err() || !look[0].revents().contains(PollFlags::ERR)
}
