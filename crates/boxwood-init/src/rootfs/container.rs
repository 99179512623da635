//! Completes the root file system of a container: private tmpfs areas, mounts and a user.
//!
//! Runs in the container's mount namespace while its init waits and no other process runs there. All paths are
//! the container's.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::{BOOTSTRAP_DIR, Identity, Plan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fspick};

use super::collect::{PlannedMounts, hide_from_commands, pts};
use super::etc::{hosts, resolv_conf, user_files};
use super::mount_point::put_over;
use super::populate::{hide_in_proc, make_directory, put_homes, put_planned};
use crate::rootfs::{clone_mount, empty_directory, make_read_only, open_mount, tmpfs};
use crate::step::{Step, StepError};

pub(crate) fn populate_container(plan: &Plan, mounts: &PlannedMounts) -> Result<(), StepError> {
    let identity = &plan.identity;
    // Before any file of the image is opened: this process may have the host's privileges, and the engine's
    // device rules do not apply to it.
    check_kernel_mounts()?;
    restrict_root(plan.read_only_root)?;
    cover_bootstrap_dir(plan)?;
    // Engines hide less of `/proc`, do not hide init, and do not limit terminals.
    hide_init(identity)?;
    hide_in_proc()?;
    put_over(identity, &pts()?, "/dev/pts", true)?;
    for path in ["/tmp", "/dev/shm"] {
        put_over(identity, &tmpfs(plan.tmp_mb, 0o1777, None)?, path, true)?;
    }
    // The image's own `/var/tmp` would be in the engine's layer, without a size limit.
    if !is_link("/var/tmp") {
        put_over(
            identity,
            &clone_mount("/tmp", Depth::One)?,
            "/var/tmp",
            true,
        )?;
    }
    // Hide the host's devices, and the subscription secrets that some distributions mount into every container.
    for path in ["/sys", "/run/secrets"] {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            put_over(identity, &empty_directory()?, path, true)?;
        }
    }
    put_homes(plan, |home, path| put_over(identity, home, path, true))?;
    put_planned(plan, mounts)
}

/// An image can declare volumes anywhere, and an engine may mount one over `/proc` or `/dev`.
fn check_kernel_mounts() -> Result<(), StepError> {
    for (path, kind) in [("/proc", attributes::PROC), ("/dev", attributes::TMPFS)] {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let directory = openat2(CWD, path, flags, Mode::empty(), resolve)
            .step_with(|| format!("open {path}"))?;
        let found = attributes::file_system(&directory).step_with(|| format!("open {path}"))?;
        if found != kind {
            return Err(Errno::INVAL)
                .step_with(|| format!("check that {path} is the engine's mount"));
        }
    }
    Ok(())
}

/// Hides init in the engine's `/proc`, as in the `/proc` of a native box.
fn hide_init(identity: &Identity) -> Result<(), StepError> {
    if identity.single_uid {
        return Ok(());
    }
    let proc = fspick(CWD, "/proc", FsPickFlags::FSPICK_CLOEXEC).step("open proc")?;
    hide_from_commands(proc.as_fd(), identity)?;
    fsconfig_reconfigure(proc.as_fd()).step("hide init in proc")
}

/// Mounts the root `nosuid` and `nodev`. A read-only root includes everything that the engine mounted in it,
/// because an image's volumes are on the host's disk.
fn restrict_root(read_only: bool) -> Result<(), StepError> {
    let root = open_mount("/")?;
    attributes::set_attributes(
        root.as_fd(),
        attributes::NOSUID | attributes::NODEV,
        Depth::One,
    )
    .step("mount the root nosuid and nodev")?;
    if !read_only {
        return Ok(());
    }
    let close = attributes::RDONLY | attributes::NOSUID;
    attributes::set_attributes(root.as_fd(), close, Depth::Recursive)
        .step("make the root read-only")?;
    let proc = open_mount("/proc")?;
    attributes::clear_attributes(proc.as_fd(), attributes::RDONLY, Depth::One)
        .step("make proc writable")
}

/// Covers the init program and the bootstrap socket with a tmpfs that holds the box's own files of `/etc`, and
/// mounts those over the image's.
fn cover_bootstrap_dir(plan: &Plan) -> Result<(), StepError> {
    let identity = &plan.identity;
    put_over(identity, &tmpfs(1, 0o755, None)?, BOOTSTRAP_DIR, true)?;
    let etc = format!("{BOOTSTRAP_DIR}/etc");
    make_directory(&etc, 0o755)?;
    let mut files = vec![
        ("/etc/resolv.conf", resolv_conf(plan)),
        ("/etc/hosts", hosts(plan)),
    ];
    files.extend(user_files(identity)?);
    let mut trees = Vec::new();
    for (path, text) in files {
        let name = path.rsplit('/').next().unwrap_or(path);
        let copy = format!("{etc}/{name}");
        fs::write(&copy, text).step_with(|| format!("write {copy}"))?;
        let tree = clone_mount(&copy, Depth::One)?;
        make_read_only(tree.as_fd(), Depth::One)?;
        trees.push((path, tree));
    }
    make_read_only(open_mount(BOOTSTRAP_DIR)?.as_fd(), Depth::One)?;
    for (path, tree) in trees {
        put_file(identity, &tree, path)?;
    }
    Ok(())
}

/// Removes a symlink of the image first: mount points are never followed through symlinks.
fn put_file(identity: &Identity, tree: &OwnedFd, path: &str) -> Result<(), StepError> {
    if is_link(path) {
        fs::remove_file(path).step_with(|| format!("replace {path}"))?;
    }
    put_over(identity, tree, path, false)
}

fn is_link(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}
