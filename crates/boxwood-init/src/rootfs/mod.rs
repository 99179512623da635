//! Builds the root file system of a box and pivots into it.
//!
//! Everything from the host is first collected as detached mounts, and attached only after `pivot_root`. Host
//! paths are resolved only before it and box paths only after it, so no symlink of one side can lead into the
//! other.

mod collect;
mod container;
mod etc;
mod host_paths;
mod mount_point;
mod populate;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{Plan, RootPlan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{CWD, Mode};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, move_mount, open_tree, unmount,
};

use crate::step::{Step, StepError};
use collect::Collected;
pub(crate) use collect::{PlannedMounts, System, bind};
pub(crate) use container::populate_container;
pub(crate) use etc::add_user;
pub(crate) use mount_point::put_over;
pub(crate) use populate::populate_jail;

pub(crate) fn build(plan: &Plan, fds: &[OwnedFd]) -> Result<(), StepError> {
    // Not earlier: a prewarmed box must not keep file systems busy that the host unmounts.
    cut_propagation()?;
    let collected = Collected::from_host(plan, fds)?;
    enter_new_root(plan, &collected)?;
    populate::populate(plan, &collected)
}

/// Stops mount events of the host from reaching this mount namespace.
pub(crate) fn cut_propagation() -> Result<(), StepError> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .step("cut mount propagation")
}

/// Pivots into an empty root, or into the image with a writable overlay, and unmounts the host's root.
fn enter_new_root(plan: &Plan, collected: &Collected) -> Result<(), StepError> {
    let staging_dir = host_paths::STAGING
        .into_iter()
        .find(|path| std::path::Path::new(path).is_dir())
        .unwrap_or("/tmp");
    if let (RootPlan::Directory(_), Some(image)) = (&plan.root, &collected.image) {
        put(tmpfs(plan.home_mb, 0o700, None)?.as_fd(), staging_dir)?;
        rustix::process::chdir(staging_dir).step("enter the staging directory")?;
        for name in ["image", "upper", "work", "root"] {
            rustix::fs::mkdir(name, Mode::from_raw_mode(0o755))
                .step("create the overlay directories")?;
        }
        put(image.as_fd(), "image")?;
        put(
            overlay(staging_dir, "image", "upper", "work")?.as_fd(),
            "root",
        )?;
        rustix::process::chdir("root").step("enter the image")?;
    } else {
        put(tmpfs(4, 0o755, None)?.as_fd(), staging_dir)?;
        rustix::process::chdir(staging_dir).step("enter the new root")?;
    }
    rustix::process::pivot_root(".", ".").step("pivot into the new root")?;
    unmount(".", UnmountFlags::DETACH).step("unmount the host's root")?;
    rustix::process::chdir("/").step("change to the new root")
}

/// A new tmpfs. `owner` is the uid and gid of its root directory.
pub(crate) fn tmpfs(
    size_mb: u64,
    mode: u32,
    owner: Option<(u32, u32)>,
) -> Result<OwnedFd, StepError> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("open tmpfs")?;
    let set = |key: &str, value: &str| {
        fsconfig_set_string(context.as_fd(), key, value).step_with(|| format!("set tmpfs {key}"))
    };
    set("size", &format!("{size_mb}m"))?;
    // Empty files use kernel memory too. One inode per KiB is enough for ordinary trees.
    set("nr_inodes", &format!("{}", (size_mb * 1024).max(4096)))?;
    set("mode", &format!("{mode:o}"))?;
    if let Some((uid, gid)) = owner {
        set("uid", &uid.to_string())?;
        set("gid", &gid.to_string())?;
    }
    mounted(
        &context,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
        "tmpfs",
    )
}

/// A writable overlay over a read-only directory. Paths are relative to `base`; the kernel needs absolute
/// ones.
pub(crate) fn overlay(
    base: &str,
    lower: &str,
    upper: &str,
    work: &str,
) -> Result<OwnedFd, StepError> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("open overlay")?;
    for (key, value) in [("lowerdir", lower), ("upperdir", upper), ("workdir", work)] {
        fsconfig_set_string(context.as_fd(), key, format!("{base}/{value}"))
            .step_with(|| format!("set overlay {key}"))?;
    }
    // `trusted.*` attributes are not available in user namespaces.
    fsconfig_set_flag(context.as_fd(), "userxattr").step("set overlay userxattr")?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    mounted(&context, flags, "overlay")
}

pub(crate) fn mounted(
    context: &OwnedFd,
    flags: MountAttrFlags,
    what: &str,
) -> Result<OwnedFd, StepError> {
    fsconfig_create(context.as_fd()).step_with(|| format!("create {what}"))?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
        .step_with(|| format!("mount {what}"))
}

/// A detached copy of the mount at `path`.
pub(crate) fn clone_mount(path: &str, depth: Depth) -> Result<OwnedFd, StepError> {
    let recursive = match depth {
        Depth::One => OpenTreeFlags::empty(),
        Depth::Recursive => OpenTreeFlags::AT_RECURSIVE,
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | recursive;
    open_tree(CWD, path, flags).step_with(|| format!("clone the mount of {path}"))
}

/// The mount at `path` itself.
pub(crate) fn open_mount(path: &str) -> Result<OwnedFd, StepError> {
    open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .step_with(|| format!("open the mount {path}"))
}

/// A read-only directory without entries.
pub(crate) fn empty_directory() -> Result<OwnedFd, StepError> {
    let empty = tmpfs(1, 0o555, None)?;
    make_read_only(empty.as_fd(), Depth::One)?;
    Ok(empty)
}

/// Attaches a detached mount.
pub(crate) fn put(mount: BorrowedFd<'_>, target: &str) -> Result<(), StepError> {
    move_mount(
        mount,
        "",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .step_with(|| format!("mount {target}"))
}

pub(crate) fn make_read_only(mount: BorrowedFd<'_>, depth: Depth) -> Result<(), StepError> {
    let set = attributes::RDONLY | attributes::NOSUID | attributes::NODEV;
    attributes::set_attributes(mount, set, depth).step("make a mount read-only")
}
