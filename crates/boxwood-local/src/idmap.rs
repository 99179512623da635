//! Host directories as detached mounts whose owners are translated.
//!
//! A file that belongs to somebody on the host belongs to the box's user inside, and what the box's
//! user makes belongs to that somebody on the host.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::{Channel, ToSpawner};
use boxwood_policy::OpenedPath;
use boxwood_sys::mount;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, Signal, pidfd_send_signal};

use crate::mapping::BoxIds;
use crate::spawner::Spawner;

/// Clones the mount that `source` is on, from there down, with its owner as the box's user.
pub(crate) fn translated(
    spawner: &Spawner,
    source: &OpenedPath,
    ids: &BoxIds,
) -> io::Result<OwnedFd> {
    let stat = rustix::fs::fstat(source.fd())?;
    let uid_map = format!("{} {} 1\n", stat.st_uid, ids.command_uid);
    let gid_map = format!("{} {} 1\n", stat.st_gid, ids.command_gid);
    let user_namespace = user_namespace(spawner, None, |pid| {
        fs::write(format!("/proc/{pid}/uid_map"), uid_map)?;
        fs::write(format!("/proc/{pid}/gid_map"), gid_map)
    })?;
    let tree = clone(source)?;
    mount::set_idmap(tree.as_fd(), user_namespace.as_fd())?;
    Ok(tree)
}

/// The same for an image: its ids are the box's, one by one.
pub fn shifted(image: &OpenedPath, init: Pid) -> io::Result<OwnedFd> {
    let user_namespace = fs::File::open(format!("/proc/{}/ns/user", init.as_raw_nonzero()))?;
    let tree = clone(image)?;
    mount::set_idmap(tree.as_fd(), user_namespace.as_fd())?;
    Ok(tree)
}

/// Without what is mounted below: only the directory that was judged.
fn clone(source: &OpenedPath) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(source.fd(), "", flags)?)
}

/// A user namespace that exists for its maps alone, which `map` writes.
pub(crate) fn user_namespace(
    spawner: &Spawner,
    owner: Option<u32>,
    map: impl FnOnce(i32) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let (_ours, theirs) = Channel::pair()?;
    let born = spawner.ask(ToSpawner::UserNamespace { owner }, &theirs)?;
    let namespace =
        map(born.pid).and_then(|()| fs::File::open(format!("/proc/{}/ns/user", born.pid)));
    // The open file keeps the namespace.
    let _ = pidfd_send_signal(&born.pidfd, Signal::KILL);
    namespace.map(OwnedFd::from)
}
