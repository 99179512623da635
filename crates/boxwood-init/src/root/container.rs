//! What a container gets beside what its engine made: private areas, mounts, a user of its own.
//!
//! Runs in the container's mount namespace while its init waits and nothing else runs there. Never
//! here: a path of the host.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use boxwood_init::{Identity, MEETING_PLACE, Plan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstatfs, openat2};
use rustix::io::Errno;
use rustix::mount::{FsPickFlags, OpenTreeFlags, fsconfig_reconfigure, fspick, open_tree};

use crate::root::collect::{Given, hide_from_commands, pts};
use crate::root::etc::{USER_FILES, hosts, resolv_conf, with_user};
use crate::root::furnish::{hide_in_proc, make_directory, make_owned_directory};
use crate::root::target::put_over;
use crate::root::{make_read_only, tmpfs};
use crate::step::{Step, StepError};

pub(crate) fn furnish_container(plan: &Plan, given: &Given) -> Result<(), StepError> {
    let identity = &plan.identity;
    let owner = (identity.command_uid, identity.command_gid);
    // Before anything of the image is looked at: this process may have every right of the host's, and
    // no engine's list of devices holds for it.
    check_ground()?;
    tame_root(plan.read_only_root)?;
    cover_meeting_place(plan)?;
    // Engines hide less of the kernel and nothing of init, and count no terminals.
    hide_init(identity)?;
    hide_in_proc()?;
    put_over(identity, &pts()?, "/dev/pts", true)?;
    for path in ["/tmp", "/dev/shm"] {
        put_over(identity, &tmpfs(plan.tmp_mb, 0o1777, None)?, path, true)?;
    }
    // One area under both names: an image's own would be the engine's layer, without a bound.
    if !is_link("/var/tmp") {
        put_over(identity, &tree_of("/tmp")?, "/var/tmp", true)?;
    }
    // The host's devices are no business of the box's, not even to look at; nor are the subscriptions that
    // some distributions mount into every container.
    for path in ["/sys", "/run/secrets"] {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            let nothing = tmpfs(1, 0o555, None)?;
            make_read_only(nothing.as_fd(), Depth::One)?;
            put_over(identity, &nothing, path, true)?;
        }
    }
    put_over(identity, &tmpfs(plan.home_mb, 0o755, None)?, "/home", true)?;
    make_owned_directory("/home/box", owner)?;
    if owner.0 == 0 {
        let home = tmpfs(plan.home_mb, 0o700, Some(owner))?;
        put_over(identity, &home, "/root", true)?;
    }
    let private;
    let workspace = if let Some(tree) = &given.workspace {
        tree
    } else {
        private = tmpfs(plan.private_workspace_mb, 0o755, Some(owner))?;
        &private
    };
    put_over(identity, workspace, &plan.workspace_path, true)?;
    for (mount, tree) in plan.mounts.iter().zip(&given.mounts) {
        put_over(identity, tree, &mount.target, mount.is_dir)?;
    }
    Ok(())
}

/// An image may ask for volumes anywhere, and a lax runtime may put one over what is the kernel's.
fn check_ground() -> Result<(), StepError> {
    const TMPFS: libc::__fsword_t = 0x0102_1994;
    for (path, kind) in [("/proc", PROC_SUPER_MAGIC), ("/dev", TMPFS)] {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let place = openat2(CWD, path, flags, Mode::empty(), how)
            .step_with(|| format!("look at {path}"))?;
        let found = fstatfs(&place).step_with(|| format!("look at {path}"))?;
        if found.f_type != kind {
            return Err(Errno::INVAL)
                .step_with(|| format!("find the engine's own {path}, not the image's"));
        }
    }
    Ok(())
}

/// Commands see their own processes in the engine's `/proc`, as they do in one that we mounted.
fn hide_init(identity: &Identity) -> Result<(), StepError> {
    if identity.single_uid {
        return Ok(());
    }
    let proc = fspick(CWD, "/proc", FsPickFlags::FSPICK_CLOEXEC).step("look at proc")?;
    hide_from_commands(proc.as_fd(), identity)?;
    fsconfig_reconfigure(proc.as_fd()).step("hide init in proc")
}

/// Nothing on the image's own files gives a right or is a device. A root that is to be read-only is so
/// with everything that the engine mounted in it: an image's volumes are on the host's disk.
fn tame_root(read_only: bool) -> Result<(), StepError> {
    let look = |path| open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLOEXEC);
    let root = look("/").step("look at the root")?;
    attributes::set_attributes(
        root.as_fd(),
        attributes::NOSUID | attributes::NODEV,
        Depth::One,
    )
    .step("take set-id bits and devices off the root")?;
    if !read_only {
        return Ok(());
    }
    let close = attributes::RDONLY | attributes::NOSUID;
    attributes::set_attributes(root.as_fd(), close, Depth::Recursive)
        .step("make everything in the root read-only")?;
    let proc = look("/proc").step("look at proc")?;
    attributes::clear_attributes(proc.as_fd(), attributes::RDONLY, Depth::One)
        .step("let processes set what is their own")
}

/// Hides the init program and the daemon's socket behind the few files of `/etc` that a box has of
/// its own, and puts those over the image's.
fn cover_meeting_place(plan: &Plan) -> Result<(), StepError> {
    let identity = &plan.identity;
    put_over(identity, &tmpfs(1, 0o755, None)?, MEETING_PLACE, true)?;
    let etc = format!("{MEETING_PLACE}/etc");
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
    let cover = open_tree(CWD, MEETING_PLACE, OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .step("look at the meeting place")?;
    make_read_only(cover.as_fd(), Depth::One)?;
    for (path, tree) in trees {
        put_file(identity, &tree, path)?;
    }
    Ok(())
}

fn tree_of(path: &str) -> Result<OwnedFd, StepError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, path, flags).step_with(|| format!("look at {path}"))
}

fn clone(path: &str) -> Result<OwnedFd, StepError> {
    let tree = tree_of(path)?;
    make_read_only(tree.as_fd(), Depth::One)?;
    Ok(tree)
}

/// Some images have symlinks there; what those lead to is not followed, so the link has to go first
/// where that is possible.
fn put_file(identity: &Identity, tree: &OwnedFd, path: &str) -> Result<(), StepError> {
    if is_link(path) {
        fs::remove_file(path).step_with(|| format!("replace {path}"))?;
    }
    put_over(identity, tree, path, false)
}

fn is_link(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}
