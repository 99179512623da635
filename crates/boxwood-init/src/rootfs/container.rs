//! Completes the root file system of a container: private tmpfs areas, mounts and a user.
//!
//! Runs in the container's mount namespace while its init waits and no other process runs there. All paths are
//! the container's.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::{BOOTSTRAP_DIR, Identity, Plan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstatfs, openat2};
use rustix::io::Errno;
use rustix::mount::{FsPickFlags, OpenTreeFlags, fsconfig_reconfigure, fspick, open_tree};

use super::collect::{PlannedMounts, hide_from_commands, pts};
use super::etc::{USER_FILES, hosts, resolv_conf, with_user};
use super::mount_point::put_over;
use super::populate::{hide_in_proc, make_directory, make_owned_directory};
use crate::rootfs::{make_read_only, tmpfs};
use crate::step::{Step, StepError};

pub(crate) fn populate_container(plan: &Plan, mounts: &PlannedMounts) -> Result<(), StepError> {
    let identity = &plan.identity;
    let owner = (identity.command_uid, identity.command_gid);
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
        put_over(identity, &tree_of("/tmp")?, "/var/tmp", true)?;
    }
    // Hide the host's devices, and the subscription secrets that some distributions mount into every container.
    for path in ["/sys", "/run/secrets"] {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            let empty = tmpfs(1, 0o555, None)?;
            make_read_only(empty.as_fd(), Depth::One)?;
            put_over(identity, &empty, path, true)?;
        }
    }
    put_over(identity, &tmpfs(plan.home_mb, 0o755, None)?, "/home", true)?;
    make_owned_directory("/home/box", owner)?;
    if owner.0 == 0 {
        let home = tmpfs(plan.home_mb, 0o700, Some(owner))?;
        put_over(identity, &home, "/root", true)?;
    }
    let private;
    let workspace = if let Some(tree) = &mounts.workspace {
        tree
    } else {
        private = tmpfs(plan.private_workspace_mb, 0o755, Some(owner))?;
        &private
    };
    put_over(identity, workspace, &plan.workspace_path, true)?;
    for (mount, tree) in plan.mounts.iter().zip(&mounts.mounts) {
        put_over(identity, tree, &mount.target, mount.is_dir)?;
    }
    Ok(())
}

/// An image can declare volumes anywhere, and an engine may mount one over `/proc` or `/dev`.
fn check_kernel_mounts() -> Result<(), StepError> {
    const TMPFS: libc::__fsword_t = 0x0102_1994;
    for (path, kind) in [("/proc", PROC_SUPER_MAGIC), ("/dev", TMPFS)] {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let place =
            openat2(CWD, path, flags, Mode::empty(), how).step_with(|| format!("open {path}"))?;
        let found = fstatfs(&place).step_with(|| format!("open {path}"))?;
        if found.f_type != kind {
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
    let look = |path| open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLOEXEC);
    let root = look("/").step("open the root")?;
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
    let proc = look("/proc").step("open proc")?;
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
    for (path, line) in USER_FILES {
        if let Some(text) = with_user(path, line)? {
            files.push((path, text));
        }
    }
    let mut trees = Vec::new();
    for (path, text) in files {
        let name = path.rsplit('/').next().unwrap_or(path);
        let copy = format!("{etc}/{name}");
        fs::write(&copy, text).step_with(|| format!("write {copy}"))?;
        trees.push((path, clone(&copy)?));
    }
    let cover = open_tree(CWD, BOOTSTRAP_DIR, OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .step("open the bootstrap directory")?;
    make_read_only(cover.as_fd(), Depth::One)?;
    for (path, tree) in trees {
        put_file(identity, &tree, path)?;
    }
    Ok(())
}

fn tree_of(path: &str) -> Result<OwnedFd, StepError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, path, flags).step_with(|| format!("open {path}"))
}

fn clone(path: &str) -> Result<OwnedFd, StepError> {
    let tree = tree_of(path)?;
    make_read_only(tree.as_fd(), Depth::One)?;
    Ok(tree)
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
