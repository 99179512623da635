//! Puts the box's root together and moves into it.
//!
//! Comes in: a plan and its descriptors, in a copy of the host's mounts. Goes out: a mount namespace
//! in which nothing of the host is left but what the plan names. Never here: a path of the host
//! looked up after the move, or a path of the box looked up before it: everything is collected as
//! detached mounts first, and only then put into place, so that no symlink of either side can lead
//! into the other.

mod collect;
mod container;
mod etc;
mod furnish;
mod target;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{Plan, RootPlan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{CWD, Mode};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    move_mount, unmount,
};

use crate::places;
use crate::step::{Step, StepError};
use collect::Collected;
pub(crate) use collect::{Given, System, bind};
pub(crate) use container::furnish_container;
pub(crate) use furnish::furnish_jail;
pub(crate) use target::put_over;

pub(crate) fn build(plan: &Plan, fds: &[OwnedFd]) -> Result<(), StepError> {
    // Until now propagation was good, a waiting box must not hold on to what the host unmounts; what
    // is taken along from here stays as it is.
    cut_propagation()?;
    let collected = Collected::from_host(plan, fds)?;
    enter_new_root(plan, &collected)?;
    furnish::furnish(plan, &collected)
}

/// A new namespace's copies receive the host's mount events; from here on they do not.
pub(crate) fn cut_propagation() -> Result<(), StepError> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .step("cut mount propagation")
}

/// Pivots into an empty root (or the image under a writable layer) and lets go of the host's.
fn enter_new_root(plan: &Plan, collected: &Collected) -> Result<(), StepError> {
    let stage = places::STAGES
        .into_iter()
        .find(|path| std::path::Path::new(path).is_dir())
        .unwrap_or("/tmp");
    if let (RootPlan::Directory(_), Some(image)) = (&plan.root, &collected.image) {
        put(tmpfs(plan.home_mb, 0o700, None)?.as_fd(), stage)?;
        rustix::process::chdir(stage).step("enter the stage")?;
        for name in ["image", "upper", "work", "root"] {
            rustix::fs::mkdir(name, Mode::from_raw_mode(0o755)).step("lay out the image")?;
        }
        put(image.as_fd(), "image")?;
        put(overlay(stage, "image", "upper", "work")?.as_fd(), "root")?;
        rustix::process::chdir("root").step("enter the image")?;
    } else {
        put(tmpfs(4, 0o755, None)?.as_fd(), stage)?;
        rustix::process::chdir(stage).step("enter the new root")?;
    }
    rustix::process::pivot_root(".", ".").step("move into the new root")?;
    unmount(".", UnmountFlags::DETACH).step("let go of the host's root")?;
    rustix::process::chdir("/").step("stand at the new root")
}

/// A new private file system in memory. `owner` is the uid and gid of its top directory.
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
    // An empty file costs kernel memory too; one per KiB is more than any honest tree has.
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

/// A writable layer over a read-only directory. Paths are relative to `base`, the kernel wants
/// them absolute.
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
    // Trusted attributes are not for user namespaces.
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
