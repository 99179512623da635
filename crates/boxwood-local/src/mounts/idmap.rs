//! Host directories as detached mounts with translated owners.
//!
//! Files of the source's owner belong to the box's user inside, and files that the box's user creates
//! belong to that owner on the host.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::{Channel, ToSpawner};
use boxwood_policy::OpenedPath;
use boxwood_sys::mount;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, Signal, pidfd_send_signal};

use crate::host::spawner::Spawner;
use crate::ids::BoxIds;

/// Clones the mount below `source`, with its owner mapped to the box's user.
pub(crate) fn idmapped_mount(
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

/// Clones an image with all its ids mapped to those of the box.
pub fn idmapped_image(image: &OpenedPath, init: Pid) -> io::Result<OwnedFd> {
    let user_namespace = fs::File::open(format!("/proc/{}/ns/user", init.as_raw_nonzero()))?;
    let tree = clone(image)?;
    mount::set_idmap(tree.as_fd(), user_namespace.as_fd())?;
    Ok(tree)
}

/// Without submounts: only the directory that was checked.
fn clone(source: &OpenedPath) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(source.fd(), "", flags)?)
}

/// A user namespace that exists only for its maps, which `map` writes.
pub(crate) fn user_namespace(
    spawner: &Spawner,
    owner: Option<u32>,
    map: impl FnOnce(i32) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let (_channel, process_channel) = Channel::pair()?;
    let process = spawner.spawn(ToSpawner::UserNamespace { owner }, &process_channel)?;
    let namespace =
        map(process.pid).and_then(|()| fs::File::open(format!("/proc/{}/ns/user", process.pid)));
    // The open file keeps the namespace alive.
    let _ = pidfd_send_signal(&process.pidfd, Signal::KILL);
    namespace.map(OwnedFd::from)
}
