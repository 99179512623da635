//! Puts what was collected into its places. Runs inside the new root: every path is the box's.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use boxwood_init::{Plan, RootPlan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{CWD, Mode};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::thread::{Gid, Uid};

use crate::places;
use crate::root::collect::{Collected, Given, Piece, System, pts};
use crate::root::target::put_at;
use crate::root::{etc, make_read_only, overlay, put, tmpfs};
use crate::step::{Step, StepError};

pub(crate) fn furnish(plan: &Plan, collected: &Collected) -> Result<(), StepError> {
    lay_out(plan, &collected.system)?;
    put(collected.proc.as_fd(), "/proc")?;
    hide_in_proc()?;
    move_in(plan, &collected.given)
}

/// The same in the empty root of a jail, which has its `/proc` already.
pub(crate) fn furnish_jail(plan: &Plan, system: &System, given: &Given) -> Result<(), StepError> {
    // As those of every box; jails leave the root to everybody, and have no opinion on `/proc`.
    rustix::fs::chmod("/", Mode::from_raw_mode(0o755)).step("close the root")?;
    lay_out(plan, system)?;
    let proc = open_tree(CWD, "/proc", OpenTreeFlags::OPEN_TREE_CLOEXEC).step("look at /proc")?;
    let flags = attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
    attributes::set_attributes(proc.as_fd(), flags, Depth::One).step("close /proc")?;
    hide_in_proc()?;
    move_in(plan, given)
}

fn is_host_root(plan: &Plan) -> bool {
    matches!(plan.root, RootPlan::Host | RootPlan::Jail)
}

/// Directories, system pieces, `/etc` and `/dev`.
fn lay_out(plan: &Plan, system: &System) -> Result<(), StepError> {
    for name in [
        "etc", "home", "mnt", "opt", "proc", "dev", "root", "run", "srv", "tmp", "var",
    ] {
        make_directory(&format!("/{name}"), 0o755)?;
    }
    for (path, piece) in &system.pieces {
        place_piece(path, piece)?;
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

/// What the box may write, and what it was given. The root is closed at the end.
fn move_in(plan: &Plan, given: &Given) -> Result<(), StepError> {
    let host_root = is_host_root(plan);
    put(tmpfs(plan.tmp_mb, 0o1777, None)?.as_fd(), "/tmp")?;
    private_areas(plan, host_root)?;
    let root = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC).step("look at the root")?;
    // Targets of mounts are made while the root can still be written.
    workspace(plan, given.workspace.as_ref())?;
    for (mount, tree) in plan.mounts.iter().zip(&given.mounts) {
        put_at(&plan.identity, tree, &mount.target, mount.is_dir)?;
    }
    if host_root || plan.read_only_root {
        make_read_only(root.as_fd(), Depth::One)?;
    }
    Ok(())
}

fn place_piece(path: &str, piece: &Piece) -> Result<(), StepError> {
    if let Some(parent) = Path::new(path).parent().and_then(Path::to_str) {
        // Already there when the parent is itself a piece (`/usr/lib/...`).
        if !Path::new(parent).is_dir() {
            make_directory(parent, 0o755)?;
        }
    }
    match piece {
        Piece::Symlink(target) => make_symlink(target, path),
        Piece::Directory(mount) => {
            make_directory(path, 0o755)?;
            put(mount.as_fd(), path)
        }
        Piece::File(mount) => {
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
    let dev = open_tree(CWD, "/dev", OpenTreeFlags::OPEN_TREE_CLOEXEC).step("look at /dev")?;
    attributes::set_attributes(dev.as_fd(), attributes::RDONLY, Depth::One)
        .step("make /dev read-only")
}

pub(super) fn hide_in_proc() -> Result<(), StepError> {
    for name in places::PROC_READ_ONLY {
        let path = format!("/proc/{name}");
        if Path::new(&path).is_dir() {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, &*path, flags).step_with(|| format!("look at {path}"))?;
            make_read_only(tree.as_fd(), Depth::One)?;
            put(tree.as_fd(), &path)?;
        }
    }
    for name in places::PROC_HIDDEN_DIRECTORIES {
        let path = format!("/proc/{name}");
        if Path::new(&path).is_dir() {
            let empty = tmpfs(1, 0o555, None)?;
            make_read_only(empty.as_fd(), Depth::One)?;
            put(empty.as_fd(), &path)?;
        }
    }
    for name in places::PROC_HIDDEN_FILES {
        let path = format!("/proc/{name}");
        if Path::new(&path).exists() {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let null = open_tree(CWD, "/dev/null", flags).step("look at /dev/null")?;
            put(null.as_fd(), &path)?;
        }
    }
    Ok(())
}

/// Home, and what else may be written when the root is not read-only.
fn private_areas(plan: &Plan, host_root: bool) -> Result<(), StepError> {
    let owner = (plan.identity.command_uid, plan.identity.command_gid);
    put(tmpfs(plan.home_mb, 0o755, None)?.as_fd(), "/home")?;
    make_owned_directory("/home/box", owner)?;
    if owner.0 == 0 {
        put(tmpfs(plan.home_mb, 0o700, Some(owner))?.as_fd(), "/root")?;
    }
    if plan.read_only_root || !host_root {
        return Ok(());
    }
    put(tmpfs(plan.home_mb, 0o755, Some(owner))?.as_fd(), "/opt")?;
    if Path::new("/usr/local").is_dir() {
        local_layer(plan, owner)?;
    }
    Ok(())
}

/// `/usr/local` as the host has it, with a private layer on top. A kernel that cannot layer in a
/// user namespace leaves it read-only, which is the stricter of the two.
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

fn workspace(plan: &Plan, mount: Option<&OwnedFd>) -> Result<(), StepError> {
    let path = &plan.workspace_path;
    if let Some(tree) = mount {
        return put_at(&plan.identity, tree, path, true);
    }
    let owner = (plan.identity.command_uid, plan.identity.command_gid);
    put_at(
        &plan.identity,
        &tmpfs(plan.private_workspace_mb, 0o755, Some(owner))?,
        path,
        true,
    )
}

pub(super) fn make_directory(path: &str, mode: u32) -> Result<(), StepError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .step_with(|| format!("make the directory {path}"))
}

pub(super) fn make_owned_directory(path: &str, (uid, gid): (u32, u32)) -> Result<(), StepError> {
    make_directory(path, 0o755)?;
    rustix::fs::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        .step_with(|| format!("give {path} to the box's user"))
}

pub(super) fn make_file(path: &str) -> Result<(), StepError> {
    if Path::new(path).exists() {
        return Ok(());
    }
    fs::File::create(path)
        .map(drop)
        .step_with(|| format!("make the file {path}"))
}

fn make_symlink(target: &str, link: &str) -> Result<(), StepError> {
    symlink(target, link).step_with(|| format!("make the link {link}"))
}
