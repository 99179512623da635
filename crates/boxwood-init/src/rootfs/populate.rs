//! Attaches the collected mounts and creates the box's files. Runs inside the new root: all paths are the
//! box's.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use boxwood_init::{Plan, RootPlan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::Mode;
use rustix::thread::{Gid, Uid};

use super::collect::{Collected, PlannedMounts, System, SystemEntry, pts};
use super::host_paths;
use super::mount_point::put_over;
use crate::rootfs::{
    clone_mount, empty_directory, etc, make_read_only, open_mount, overlay, put, tmpfs,
};
use crate::step::{Step, StepError};

pub(crate) fn populate(plan: &Plan, collected: &Collected) -> Result<(), StepError> {
    lay_out(plan, &collected.system)?;
    put(collected.proc.as_fd(), "/proc")?;
    hide_in_proc()?;
    attach_writable(plan, &collected.mounts)
}

/// The same in the empty root of nsjail, which already has a `/proc`.
pub(crate) fn populate_jail(
    plan: &Plan,
    system: &System,
    mounts: &PlannedMounts,
) -> Result<(), StepError> {
    // nsjail leaves the root world-writable and mounts `/proc` without these flags.
    rustix::fs::chmod("/", Mode::from_raw_mode(0o755)).step("set the mode of the root")?;
    lay_out(plan, system)?;
    let proc = open_mount("/proc")?;
    let flags = attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
    attributes::set_attributes(proc.as_fd(), flags, Depth::One).step("restrict /proc")?;
    hide_in_proc()?;
    attach_writable(plan, mounts)
}

fn is_host_root(plan: &Plan) -> bool {
    matches!(plan.root, RootPlan::Host | RootPlan::Jail)
}

/// Directories, system entries, `/etc` and `/dev`.
fn lay_out(plan: &Plan, system: &System) -> Result<(), StepError> {
    for name in [
        "etc", "home", "mnt", "opt", "proc", "dev", "root", "run", "srv", "tmp", "var",
    ] {
        make_directory(&format!("/{name}"), 0o755)?;
    }
    for (path, entry) in &system.entries {
        add_entry(path, entry)?;
    }
    etc::write(plan)?;
    if is_host_root(plan) {
        for name in ["cache", "lib", "log"] {
            make_directory(&format!("/var/{name}"), 0o755)?;
        }
        make_symlink("/tmp", "/var/tmp")?;
        make_symlink("/run", "/var/run")?;
        make_directory("/.boxwood/bin", 0o755)?;
        if let Some(python) = system.python {
            make_symlink(python, "/.boxwood/bin/python")?;
        }
    }
    dev(plan, system)
}

/// Attaches the writable areas, the workspace and the mounts, and makes the root read-only at the end.
fn attach_writable(plan: &Plan, mounts: &PlannedMounts) -> Result<(), StepError> {
    let host_root = is_host_root(plan);
    put(tmpfs(plan.tmp_mb, 0o1777, None)?.as_fd(), "/tmp")?;
    private_areas(plan, host_root)?;
    let root = open_mount("/")?;
    // Mount points are created while the root is still writable.
    put_planned(plan, mounts)?;
    if host_root || plan.read_only_root {
        make_read_only(root.as_fd(), Depth::One)?;
    }
    Ok(())
}

fn add_entry(path: &str, entry: &SystemEntry) -> Result<(), StepError> {
    if let Some(parent) = Path::new(path).parent().and_then(Path::to_str) {
        // The parent exists if it is itself an entry (`/usr/lib/...`).
        if !Path::new(parent).is_dir() {
            make_directory(parent, 0o755)?;
        }
    }
    match entry {
        SystemEntry::Symlink(target) => make_symlink(target, path),
        SystemEntry::Directory(mount) => {
            make_directory(path, 0o755)?;
            put(mount.as_fd(), path)
        }
        SystemEntry::File(mount) => {
            make_file(path)?;
            put(mount.as_fd(), path)
        }
    }
}

fn dev(plan: &Plan, system: &System) -> Result<(), StepError> {
    put(tmpfs(1, 0o755, None)?.as_fd(), "/dev")?;
    for (name, node) in &system.devices {
        let path = format!("/dev/{name}");
        make_file(&path)?;
        put(node.as_fd(), &path)?;
    }
    make_directory("/dev/pts", 0o755)?;
    put(pts()?.as_fd(), "/dev/pts")?;
    make_directory("/dev/shm", 0o1777)?;
    put(tmpfs(plan.tmp_mb, 0o1777, None)?.as_fd(), "/dev/shm")?;
    for (target, link) in [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ] {
        make_symlink(target, &format!("/dev/{link}"))?;
    }
    attributes::set_attributes(open_mount("/dev")?.as_fd(), attributes::RDONLY, Depth::One)
        .step("make /dev read-only")
}

pub(super) fn hide_in_proc() -> Result<(), StepError> {
    for name in host_paths::PROC_READ_ONLY {
        let path = format!("/proc/{name}");
        if Path::new(&path).is_dir() {
            let tree = clone_mount(&path, Depth::One)?;
            make_read_only(tree.as_fd(), Depth::One)?;
            put(tree.as_fd(), &path)?;
        }
    }
    for name in host_paths::PROC_HIDDEN_DIRECTORIES {
        let path = format!("/proc/{name}");
        if Path::new(&path).is_dir() {
            put(empty_directory()?.as_fd(), &path)?;
        }
    }
    for name in host_paths::PROC_HIDDEN_FILES {
        let path = format!("/proc/{name}");
        if Path::new(&path).exists() {
            put(clone_mount("/dev/null", Depth::One)?.as_fd(), &path)?;
        }
    }
    Ok(())
}

/// The home directory, and the other writable areas of a root that is not read-only.
fn private_areas(plan: &Plan, host_root: bool) -> Result<(), StepError> {
    put_homes(plan, |home, path| put(home.as_fd(), path))?;
    if plan.read_only_root || !host_root {
        return Ok(());
    }
    let owner = owner(plan);
    put(tmpfs(plan.home_mb, 0o755, Some(owner))?.as_fd(), "/opt")?;
    if Path::new("/usr/local").is_dir() {
        local_layer(plan, owner)?;
    }
    Ok(())
}

/// `/usr/local` of the host with a private overlay. Stays read-only if the kernel does not support overlayfs in
/// user namespaces.
fn local_layer(plan: &Plan, owner: (u32, u32)) -> Result<(), StepError> {
    make_directory("/.boxwood/local", 0o700)?;
    put(tmpfs(plan.home_mb, 0o700, None)?.as_fd(), "/.boxwood/local")?;
    make_directory("/.boxwood/local/work", 0o755)?;
    make_owned_directory("/.boxwood/local/upper", owner)?;
    for name in ["bin", "etc", "include", "lib", "sbin", "share", "src"] {
        make_owned_directory(&format!("/.boxwood/local/upper/{name}"), owner)?;
    }
    if let Ok(layered) = overlay(
        "",
        "usr/local",
        ".boxwood/local/upper",
        ".boxwood/local/work",
    ) {
        put(layered.as_fd(), "/usr/local")?;
    }
    Ok(())
}

fn owner(plan: &Plan) -> (u32, u32) {
    (plan.identity.command_uid, plan.identity.command_gid)
}

/// Attaches the home directories with `put`.
pub(super) fn put_homes(
    plan: &Plan,
    put: impl Fn(&OwnedFd, &str) -> Result<(), StepError>,
) -> Result<(), StepError> {
    put(&tmpfs(plan.home_mb, 0o755, None)?, "/home")?;
    let owner = owner(plan);
    make_owned_directory("/home/box", owner)?;
    if owner.0 == 0 {
        put(&tmpfs(plan.home_mb, 0o700, Some(owner))?, "/root")?;
    }
    Ok(())
}

/// Attaches the workspace, private if the plan has none, and the mounts of the plan.
pub(super) fn put_planned(plan: &Plan, mounts: &PlannedMounts) -> Result<(), StepError> {
    let private;
    let workspace = if let Some(tree) = &mounts.workspace {
        tree
    } else {
        private = tmpfs(plan.private_workspace_mb, 0o755, Some(owner(plan)))?;
        &private
    };
    put_over(&plan.identity, workspace, &plan.workspace_path, true)?;
    for (mount, tree) in plan.mounts.iter().zip(&mounts.mounts) {
        put_over(&plan.identity, tree, &mount.target, mount.is_dir)?;
    }
    Ok(())
}

pub(super) fn make_directory(path: &str, mode: u32) -> Result<(), StepError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .step_with(|| format!("create the directory {path}"))
}

fn make_owned_directory(path: &str, (uid, gid): (u32, u32)) -> Result<(), StepError> {
    make_directory(path, 0o755)?;
    rustix::fs::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        .step_with(|| format!("change the owner of {path}"))
}

fn make_file(path: &str) -> Result<(), StepError> {
    if Path::new(path).exists() {
        return Ok(());
    }
    fs::File::create(path)
        .map(drop)
        .step_with(|| format!("create the file {path}"))
}

fn make_symlink(target: &str, link: &str) -> Result<(), StepError> {
    symlink(target, link).step_with(|| format!("create the symlink {link}"))
}
