//! Creates mount points in the box and mounts on them.
//!
//! Runs with the box's root as its own. Symlinks are never followed: a mount point may be inside an earlier
//! mount, whose content is untrusted and may change at the same time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::Identity;
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};

use crate::step::{Step, StepError};

/// Limit for removing stacked mounts whose source was deleted on the host.
const MAX_DELETED_MOUNTS: usize = 64;

/// Mounts `tree` at `target`, in a running box possibly over an existing mount.
pub(crate) fn put_over(
    identity: &Identity,
    tree: &OwnedFd,
    target: &str,
    is_dir: bool,
) -> Result<(), StepError> {
    for _ in 0..MAX_DELETED_MOUNTS {
        match make(identity, target, is_dir) {
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
                make_on_root(target, is_dir).step_with(|| creating(target))?;
            }
            outcome => outcome.step_with(|| creating(target))?,
        }
        let mount_point = open(target).step_with(|| format!("open the mount point {target}"))?;
        match move_onto(tree, &mount_point) {
            // The source of the existing mount was deleted on the host. The kernel does not mount over it, so
            // it is unmounted.
            Err(Errno::NOENT) if detach(target).is_ok() => {}
            outcome => return outcome.step_with(|| format!("mount {target}")),
        }
    }
    Err(Errno::MLINK).step_with(|| format!("remove the deleted mounts at {target}"))
}

fn creating(target: &str) -> String {
    format!("create the mount point {target}")
}

fn open(path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, path, flags, Mode::empty(), resolve)
}

fn move_onto(tree: &OwnedFd, mount_point: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", mount_point, "", flags)
}

/// Unmounts the topmost mount at `target`. `umount2` takes no descriptor, so the name is resolved from its
/// parent directory, where no symlink can redirect it.
fn detach(target: &str) -> rustix::io::Result<()> {
    let (parent, name) = split(target);
    let parent = open(if parent.is_empty() { "/" } else { parent })?;
    rustix::process::fchdir(&parent)?;
    let outcome = unmount(name, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    rustix::process::chdir("/")?;
    outcome
}

fn split(target: &str) -> (&str, &str) {
    target.rsplit_once('/').unwrap_or(("", target))
}

/// Creates a mount point. In a directory that the commands' user owns it gets the same owner: the directory
/// may be on the host, and its owner must be able to remove the mount point. In other host directories only
/// that uid may have write access, so a failed attempt is repeated with it.
fn make(identity: &Identity, target: &str, is_dir: bool) -> io::Result<()> {
    let make = |commands: Option<&Identity>| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())?;
        make_below(root, target, is_dir, commands)
    };
    if identity.single_uid {
        return make(None);
    }
    make(Some(identity)).or_else(|_| as_command(identity, || make(None)))
}

/// Uses the uid of `commands` in directories that they own.
fn make_below(
    mut directory: OwnedFd,
    target: &str,
    is_dir: bool,
    commands: Option<&Identity>,
) -> io::Result<()> {
    let (parent, name) = split(target);
    for part in parts(parent) {
        directory = step_into(&directory, part, commands)?;
    }
    if is_dir {
        return step_into(&directory, name, commands).map(drop);
    }
    // An existing file is not opened: a FIFO or a lease would block.
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::CLOEXEC;
    let make = || rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o644)).map(drop);
    match as_owner(&directory, commands, make)? {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(_) if rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The outer error is that of changing the uid.
fn as_owner<T>(
    directory: &OwnedFd,
    commands: Option<&Identity>,
    make: impl Fn() -> rustix::io::Result<T>,
) -> io::Result<rustix::io::Result<T>> {
    match commands {
        Some(identity) if rustix::fs::fstat(directory)?.st_uid == identity.command_uid => {
            as_command(identity, || Ok(make()))
        }
        _ => Ok(make()),
    }
}

/// Creates a mount point on the box's read-only root through a second, detached mount of it, so that the box
/// never sees a writable root.
fn make_on_root(target: &str, is_dir: bool) -> io::Result<()> {
    if !is_on_root_mount(target)? {
        return Err(io::Error::from_raw_os_error(libc::EROFS));
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let writable = open_tree(CWD, "/", flags)?;
    attributes::clear_attributes(writable.as_fd(), attributes::RDONLY, Depth::One)?;
    make_below(writable, target, is_dir, None)
}

/// Returns true if every existing component of `target` is on the box's root mount and not on a host mount.
fn is_on_root_mount(target: &str) -> io::Result<bool> {
    let mount_of = |directory: &OwnedFd| {
        let found = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        Ok::<_, io::Error>(found.stx_mnt_id)
    };
    let mut directory = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let root = mount_of(&directory)?;
    for part in parts(target) {
        match enter(&directory, part) {
            Err(Errno::NOENT) => break,
            outcome => directory = outcome?,
        }
    }
    Ok(mount_of(&directory)? == root)
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn enter(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Opens the directory `name` below `parent`, creating it if missing. Never follows a symlink.
fn step_into(parent: &OwnedFd, name: &str, commands: Option<&Identity>) -> io::Result<OwnedFd> {
    match enter(parent, name) {
        Err(Errno::NOENT) => {
            let make = || rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755));
            match as_owner(parent, commands, make)? {
                // A process in the box may have created it at the same time.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            Ok(enter(parent, name)?)
        }
        outcome => Ok(outcome?),
    }
}

/// Runs `work` with the commands' uid as file system uid.
fn as_command<T>(identity: &Identity, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    boxwood_sys::fsid::set(identity.command_uid, identity.command_gid)?;
    let outcome = work();
    boxwood_sys::fsid::set(0, 0)?;
    outcome
}
