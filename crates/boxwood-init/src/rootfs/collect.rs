//! Collects everything that a box needs from the host, as detached mounts.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use boxwood_init::{Identity, MountPlan, MountSource, Plan, RootPlan};
use boxwood_sys::mount::{self as attributes, Depth};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_set_string, fsopen, open_tree,
};

use super::host_paths;
use crate::rootfs::{clone_mount, make_read_only, mounted};
use crate::setup::fd_at;
use crate::step::{Step, StepError};

pub(crate) enum SystemEntry {
    Directory(OwnedFd),
    File(OwnedFd),
    Symlink(String),
}

pub(crate) struct Collected {
    pub(crate) image: Option<OwnedFd>,
    pub(crate) system: System,
    pub(crate) proc: OwnedFd,
    pub(crate) mounts: PlannedMounts,
}

/// The host's system directories and devices.
pub(crate) struct System {
    /// Absolute path in the box, and what to create there.
    pub(crate) entries: Vec<(String, SystemEntry)>,
    pub(crate) devices: Vec<(&'static str, OwnedFd)>,
    pub(crate) python: Option<&'static str>,
}

/// The workspace and mounts of the plan.
pub(crate) struct PlannedMounts {
    pub(crate) workspace: Option<OwnedFd>,
    pub(crate) mounts: Vec<OwnedFd>,
}

impl System {
    pub(crate) fn from_host() -> Result<Self, StepError> {
        Ok(Self {
            entries: system_entries()?,
            devices: devices()?,
            python: missing_python(),
        })
    }
}

impl PlannedMounts {
    pub(crate) fn open(plan: &Plan, fds: &[OwnedFd]) -> Result<Self, StepError> {
        let mount = |mount: &MountPlan| bind(mount, fds);
        Ok(Self {
            workspace: plan.workspace.as_ref().map(mount).transpose()?,
            mounts: plan.mounts.iter().map(mount).collect::<Result<_, _>>()?,
        })
    }
}

impl Collected {
    pub(crate) fn from_host(plan: &Plan, fds: &[OwnedFd]) -> Result<Self, StepError> {
        let (image, system) = match &plan.root {
            RootPlan::Directory(source) => {
                let image = detached(source, fds, "the image")?;
                make_read_only(image.as_fd(), Depth::Recursive)?;
                let system = System {
                    entries: Vec::new(),
                    devices: devices()?,
                    python: None,
                };
                (Some(image), system)
            }
            _ => (None, System::from_host()?),
        };
        Ok(Self {
            image,
            system,
            proc: proc(plan)?,
            mounts: PlannedMounts::open(plan, fds)?,
        })
    }
}

fn devices() -> Result<Vec<(&'static str, OwnedFd)>, StepError> {
    host_paths::DEVICES
        .into_iter()
        .map(|name| {
            let tree = clone_mount(&format!("/dev/{name}"), Depth::One)?;
            Ok((name, tree))
        })
        .collect()
}

/// Agents often run `python`; many hosts have only `python3`.
fn missing_python() -> Option<&'static str> {
    let exists = |name: &str| Path::new(name).exists();
    (!exists("/usr/bin/python") && exists("/usr/bin/python3")).then_some("/usr/bin/python3")
}

fn system_entries() -> Result<Vec<(String, SystemEntry)>, StepError> {
    let mut entries = Vec::new();
    for name in host_paths::SYSTEM {
        collect(&format!("/{name}"), &mut entries)?;
    }
    for pattern in host_paths::ETC {
        match pattern.strip_suffix('*') {
            None => collect(&format!("/etc/{pattern}"), &mut entries)?,
            Some(prefix) => {
                for name in names_in("/etc") {
                    if name.starts_with(prefix) {
                        collect(&format!("/etc/{name}"), &mut entries)?;
                    }
                }
            }
        }
    }
    hide_python_marker(&mut entries)?;
    Ok(entries)
}

/// Debian marks its Python as externally managed, so that `pip install` refuses. In a box the system
/// directories are read-only and need no such protection.
fn hide_python_marker(entries: &mut Vec<(String, SystemEntry)>) -> Result<(), StepError> {
    for name in names_in("/usr/lib") {
        let marker = format!("/usr/lib/{name}/EXTERNALLY-MANAGED");
        if name.starts_with("python3") && Path::new(&marker).is_file() {
            let null = clone_mount("/dev/null", Depth::One)?;
            entries.push((marker, SystemEntry::File(null)));
        }
    }
    Ok(())
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Adds a host path if it exists.
fn collect(path: &str, entries: &mut Vec<(String, SystemEntry)>) -> Result<(), StepError> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let entry = if metadata.file_type().is_symlink() {
        let target = fs::read_link(path).step_with(|| format!("read the link {path}"))?;
        match target.into_os_string().into_string() {
            Ok(target) => SystemEntry::Symlink(target),
            Err(_) => return Ok(()),
        }
    } else {
        let mount = clone_mount(path, Depth::Recursive)?;
        make_read_only(mount.as_fd(), Depth::Recursive)?;
        if metadata.is_dir() {
            SystemEntry::Directory(mount)
        } else {
            SystemEntry::File(mount)
        }
    };
    entries.push((path.to_owned(), entry));
    Ok(())
}

/// A mount of the plan. Its attributes are set while it is still detached.
pub(crate) fn bind(mount: &MountPlan, fds: &[OwnedFd]) -> Result<OwnedFd, StepError> {
    let tree = detached(&mount.source, fds, &mount.target)?;
    let mut set = attributes::NOSUID | attributes::NODEV;
    if mount.read_only {
        set |= attributes::RDONLY;
    }
    attributes::set_attributes(tree.as_fd(), set, Depth::Recursive)
        .step_with(|| format!("set the mount attributes of {}", mount.target))?;
    Ok(tree)
}

fn detached(source: &MountSource, fds: &[OwnedFd], name: &str) -> Result<OwnedFd, StepError> {
    let fd = fd_at(fds, source.fd())?;
    match source {
        MountSource::Detached { .. } => {
            rustix::io::fcntl_dupfd_cloexec(fd, 3).step_with(|| format!("duplicate {name}"))
        }
        MountSource::SamePath { path, .. } => same_path(path, fd, name),
    }
}

/// Opens `path` in this namespace and clones it, if it is still the file that the daemon admitted.
fn same_path(path: &str, admitted: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, StepError> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .step_with(|| format!("open {name} on the host"))?;
    let (opened_stat, admitted_stat) = (
        rustix::fs::fstat(&opened).step("stat a mount's source")?,
        rustix::fs::fstat(admitted).step("stat a mount's source")?,
    );
    if (opened_stat.st_dev, opened_stat.st_ino) != (admitted_stat.st_dev, admitted_stat.st_ino) {
        return Err(StepError {
            step: format!("check that the source of {name} is unchanged"),
            errno: libc::ESTALE,
        });
    }
    // Submounts cannot be left out: in a user namespace they are locked.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(&opened, "", flags).step_with(|| format!("clone the mount of {name}"))
}

fn proc(plan: &Plan) -> Result<OwnedFd, StepError> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).step("open proc")?;
    if !plan.identity.single_uid {
        hide_from_commands(context.as_fd(), &plan.identity)?;
    }
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mounted(&context, flags, "proc")
}

/// Commands see only processes with their own uid. Init sees all, because its group is exempt.
pub(super) fn hide_from_commands(
    proc: BorrowedFd<'_>,
    identity: &Identity,
) -> Result<(), StepError> {
    let group = identity.init_uid.to_string();
    fsconfig_set_string(proc, "hidepid", "invisible").step("hide init in proc")?;
    fsconfig_set_string(proc, "gid", &*group).step("exempt init from hiding in proc")
}

pub(super) fn pts() -> Result<OwnedFd, StepError> {
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).step("open devpts")?;
    // The host has one limit for all terminals; a box must not use them all.
    for (key, value) in [("ptmxmode", "0666"), ("mode", "0620"), ("max", "256")] {
        fsconfig_set_string(context.as_fd(), key, value)
            .step_with(|| format!("set devpts {key}"))?;
    }
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mounted(&context, flags, "devpts")
}
