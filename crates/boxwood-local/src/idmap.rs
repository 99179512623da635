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
    let user_namespace = user_namespace(
        spawner,
        &format!("{} {} 1\n", stat.st_uid, ids.command_uid),
        &format!("{} {} 1\n", stat.st_gid, ids.command_gid),
    )?;
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

/// A user namespace that exists for its maps alone.
fn user_namespace(spawner: &Spawner, uid_map: &str, gid_map: &str) -> io::Result<OwnedFd> {
    let (_ours, theirs) = Channel::pair()?;
    let born = spawner.ask(ToSpawner::UserNamespace, &theirs)?;
    let namespace = (|| {
        fs::write(format!("/proc/{}/uid_map", born.pid), uid_map)?;
        fs::write(format!("/proc/{}/gid_map", born.pid), gid_map)?;
        Ok(fs::File::open(format!("/proc/{}/ns/user", born.pid))?.into())
    })();
    // The open file keeps the namespace.
    let _ = pidfd_send_signal(&born.pidfd, Signal::KILL);
    namespace
}
