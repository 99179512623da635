//! Places in the box that something is mounted on.
//!
//! Comes in: a path of the box. Goes out: the file or directory there, made when it was missing.
//! Runs with the box's root as its own. Never here: a symlink that is followed. The place may lie in
//! an earlier mount, whose content is not to be trusted, and whose owners may be at work there.

use std::io;
use std::os::fd::OwnedFd;

use boxwood_init::Identity;
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};

use crate::step::{Step, StepError};

/// Mounts whose files were removed on the host, one over the other at one place.
const MOST_DEAD: usize = 64;

/// Mounts `tree` at `target` of a box that is being made.
pub(crate) fn put_at(
    identity: &Identity,
    tree: &OwnedFd,
    target: &str,
    is_dir: bool,
) -> Result<(), StepError> {
    make(identity, target, is_dir).step_with(|| making(target))?;
    let place = open(target).step_with(|| format!("open the mount point {target}"))?;
    move_onto(tree, &place).step_with(|| format!("mount {target}"))
}

/// The same in a box that is there, over what may be mounted at the place already.
pub(crate) fn put_over(
    identity: &Identity,
    tree: &OwnedFd,
    target: &str,
    is_dir: bool,
) -> Result<(), StepError> {
    for _ in 0..MOST_DEAD {
        match make(identity, target, is_dir) {
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
                make_on_root(target, is_dir).step_with(|| making(target))?;
            }
            outcome => outcome.step_with(|| making(target))?,
        }
        let place = open(target).step_with(|| format!("open the mount point {target}"))?;
        match move_onto(tree, &place) {
            // What is mounted there was removed on the host, and the kernel mounts nothing on the
            // dead. Nothing is lost with it.
            Err(Errno::NOENT) if detach(target).is_ok() => {}
            outcome => return outcome.step_with(|| format!("mount {target}")),
        }
    }
    Err(Errno::MLINK).step_with(|| format!("find the ground below the mounts at {target}"))
}

fn making(target: &str) -> String {
    format!("make the mount point {target}")
}

fn open(path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, path, flags, Mode::empty(), how)
}

fn move_onto(tree: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", place, "", flags)
}

/// Takes away the topmost mount at `target`. Without a descriptor to name it by, it is named from
/// its own directory, so that no link on the way can lead elsewhere.
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

/// Makes a mount point. What is made in a directory of the commands' is theirs too: it may be one of
/// the host's, whose owner wants to be able to remove it. In others of the host's nobody but the
/// commands' uid may make anything, so a place that root cannot make is tried again as that uid.
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

/// In directories that belong to `commands`, as they.
fn make_below(
    mut at: OwnedFd,
    target: &str,
    is_dir: bool,
    commands: Option<&Identity>,
) -> io::Result<()> {
    let (parent, name) = split(target);
    for part in parts(parent) {
        at = step_into(&at, part, commands)?;
    }
    if is_dir {
        return step_into(&at, name, commands).map(drop);
    }
    // What exists is not opened: a pipe or a lease would make us wait for whoever holds its end.
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::CLOEXEC;
    let make = || rustix::fs::openat(&at, name, flags, Mode::from_raw_mode(0o644)).map(drop);
    match as_owner(&at, commands, make)? {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(_) if rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The outer error is that of changing who makes it.
fn as_owner<T>(
    at: &OwnedFd,
    commands: Option<&Identity>,
    make: impl Fn() -> rustix::io::Result<T>,
) -> io::Result<rustix::io::Result<T>> {
    match commands {
        Some(identity) if rustix::fs::fstat(at)?.st_uid == identity.command_uid => {
            as_command(identity, || Ok(make()))
        }
        _ => Ok(make()),
    }
}

/// Makes a mount point on the box's own root where that is mounted read-only: through a second,
/// private mount of it that nobody else sees, so that it is read-only all the time for the box.
fn make_on_root(target: &str, is_dir: bool) -> io::Result<()> {
    if !is_missing_on_root(target)? {
        return Err(io::Error::from_raw_os_error(libc::EROFS));
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let writable = open_tree(CWD, "/", flags)?;
    attributes::clear_attributes(
        std::os::fd::AsFd::as_fd(&writable),
        attributes::RDONLY,
        Depth::One,
    )?;
    make_below(writable, target, is_dir, None)
}

/// Whether everything that exists on the way to `target` is on the mount that is the box's root, and
/// not on one of the host's.
fn is_missing_on_root(target: &str) -> io::Result<bool> {
    let mount_of = |at: &OwnedFd| {
        let found = statx(at, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        Ok::<_, io::Error>(found.stx_mnt_id)
    };
    let mut at = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let root = mount_of(&at)?;
    for part in parts(target) {
        match enter(&at, part) {
            Err(Errno::NOENT) => break,
            outcome => at = outcome?,
        }
    }
    Ok(mount_of(&at)? == root)
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn enter(at: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// Opens the directory `name` below `at`, making it when missing. Never through a symlink.
fn step_into(at: &OwnedFd, name: &str, commands: Option<&Identity>) -> io::Result<OwnedFd> {
    match enter(at, name) {
        Err(Errno::NOENT) => {
            let make = || rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755));
            match as_owner(at, commands, make)? {
                // Somebody in the box was faster.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            Ok(enter(at, name)?)
        }
        outcome => Ok(outcome?),
    }
}

/// Runs `work` with the commands' uid as the one that the file system sees.
fn as_command<T>(identity: &Identity, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    boxwood_sys::fsid::set(identity.command_uid, identity.command_gid)?;
    let outcome = work();
    boxwood_sys::fsid::set(0, 0)?;
    outcome
}
