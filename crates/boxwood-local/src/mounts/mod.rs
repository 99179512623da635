//! Mounts of a box: owner translation, the mount plan, and mounts added to a running box.

pub(crate) mod idmap;
pub(crate) mod live;
pub(crate) mod plan;

use rustix::process::Pid;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;

/// Returns true if the process has the same namespace as the daemon. Fails if `/proc` may not be read.
pub fn is_shared(pid: Pid, name: &str) -> io::Result<bool> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/{name}"));
    Ok(namespace(&pid.as_raw_nonzero().to_string())? == namespace("self")?)
}

/// Returns true if an open namespace is the daemon's own.
pub(crate) fn is_own(namespace: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let own = fs::metadata(format!("/proc/self/ns/{name}"))?;
    let stat = rustix::fs::fstat(namespace)?;
    Ok(own.ino() == stat.st_ino && own.dev() == stat.st_dev)
}
