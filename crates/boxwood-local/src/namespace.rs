//! Whether a process shares a namespace with this daemon.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::Pid;

/// By the namespace's own number. An error when the kernel does not let us look.
pub fn is_shared(pid: Pid, name: &str) -> io::Result<bool> {
    let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{name}"));
    Ok(of(&pid.as_raw_nonzero().to_string())? == of("self")?)
}

/// Whether an open namespace is this daemon's own.
pub(crate) fn is_own(namespace: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let own = fs::metadata(format!("/proc/self/ns/{name}"))?;
    let stat = rustix::fs::fstat(namespace)?;
    Ok(own.ino() == stat.st_ino && own.dev() == stat.st_dev)
}
