//! One file tool, done by a fork of init.
//!
//! The request is read from a memfd and the result written to a pipe. Only the fork has threads and holds file
//! contents, so init stays single-threaded and small.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::Identity;
use boxwood_init::file_tools::{
    self, FileToolError, FileToolErrorKind, FileToolRequest, MAX_FILE_BYTES,
};
use boxwood_sys::clone::{self, exit_now};
use boxwood_sys::memory::read_whole;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::serve::file_operation::become_command;
use crate::serve::supervisor::close_all_but;

/// An edit carries two texts.
const MAX_REQUEST_BYTES: u64 = 2 * MAX_FILE_BYTES as u64 + 64 * 1024;

pub(crate) fn start(
    request: BorrowedFd<'_>,
    response: BorrowedFd<'_>,
    identity: Identity,
) -> io::Result<i32> {
    // SAFETY: init has one thread.
    if let Some(pid) = unsafe { clone::plain_fork() }? {
        return Ok(pid);
    }
    let copies = [request, response].map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 10));
    let [Ok(request), Ok(response)] = copies else {
        exit_now(1)
    };
    close_all_but(&[&request, &response]);
    if become_command(identity).is_err() {
        exit_now(1);
    }
    let outcome = match read(&request) {
        Ok(request) => file_tools::run(request, &|| is_caller_waiting(response.as_fd())),
        Err(text) => Err(FileToolError {
            fault: FileToolErrorKind::TooLarge,
            text,
        }),
    };
    let Ok(bytes) = postcard::to_stdvec(&outcome) else {
        exit_now(1)
    };
    let sent = std::fs::File::from(response).write_all(&bytes);
    exit_now(i32::from(sent.is_err()))
}

fn read(request: &OwnedFd) -> Result<FileToolRequest, String> {
    let bytes = read_whole(request, MAX_REQUEST_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            format!("The texts are too long; the limit is {MAX_FILE_BYTES} bytes per call.")
        }
        _ => format!("Failed to read the request: {error}"),
    })?;
    postcard::from_bytes(&bytes).map_err(|_| "The request cannot be decoded".to_owned())
}

/// The caller closes its end of the pipe when it no longer waits for the result.
fn is_caller_waiting(response: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(response, PollFlags::empty())];
    let no_wait = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let outcome = poll(&mut polled, Some(&no_wait));
    outcome.is_err() || !polled[0].revents().contains(PollFlags::ERR)
}
