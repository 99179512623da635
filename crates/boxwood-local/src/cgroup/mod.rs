//! Limits, counters and whole-tree kills through cgroups: v1, v2, and hosts with both.
//!
//! A box has one group and each command a sub-group. No process is moved on the request path: a move
//! costs an RCU grace period (8 ms). Prewarmed boxes are moved ahead of time, and commands are created
//! directly in their sub-group.

mod freeze;
mod group;
mod hierarchies;
mod kill_all;
mod leftovers;
mod reopen;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use boxwood_api::Mechanism;
use boxwood_backend::{StartError, start_step};

use crate::ids::Mapping;
pub(crate) use group::{Counters, ExecGroup};
pub use group::{Group, INIT_PROCESSES};
use hierarchies::Mounts;
use leftovers::{remove_dead, remove_stale};
pub(crate) use reopen::GroupRecord;

const PARENT: &str = "boxwood";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// A directory in the hierarchy of one controller.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
}

impl Hierarchy {
    /// Path of a file whose name depends on the version.
    fn file(&self, v1: &str, v2: &str) -> PathBuf {
        self.path.join(match self.version {
            Version::V1 => v1,
            Version::V2 => v2,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// Where this instance keeps its groups of each controller.
    pub(crate) memory: Option<Hierarchy>,
    pub(crate) cpu: Option<Hierarchy>,
    pub(crate) pids: Option<Hierarchy>,
    /// Base directory in the v2 hierarchy (with or without controllers), which has `cgroup.kill`.
    pub(crate) kill: Option<PathBuf>,
    why_not: String,
}

impl Cgroups {
    /// Finds the hierarchies, creates this instance's directories, and removes empty groups of dead
    /// daemons. Populated groups may belong to a running box: see [`Cgroups::remove_leftovers`].
    pub(crate) fn detect(instance: &str, mapping: &Mapping) -> Result<Self, StartError> {
        if !mapping.is_root() {
            let why_not = "cgroups need root (delegated cgroups are not supported yet)";
            return Ok(Self {
                why_not: why_not.to_owned(),
                ..Self::default()
            });
        }
        let mounts = Mounts::read().map_err(start_step("read the host's cgroup mounts"))?;
        remove_stale(&mounts);
        let mut found = Self {
            why_not: "no usable cgroup hierarchy of this host has this controller".to_owned(),
            ..Self::default()
        };
        let v2 = mounts
            .v2
            .as_ref()
            .and_then(|mount| usable(mount, prepare_v2(mount, instance)));
        let hierarchy = |controller: &str| -> Option<Hierarchy> {
            if let Some(mount) = mounts.v1.get(controller) {
                let path = mount.join(PARENT).join(instance);
                remove_dead(&path);
                usable(mount, fs::create_dir_all(&path))?;
                return Some(Hierarchy {
                    version: Version::V1,
                    path,
                });
            }
            let (base, controllers) = v2.as_ref()?;
            let has_controller = controllers.iter().any(|name| name == controller);
            has_controller.then(|| Hierarchy {
                version: Version::V2,
                path: base.clone(),
            })
        };
        found.memory = hierarchy("memory");
        found.cpu = hierarchy("cpu");
        found.pids = hierarchy("pids");
        found.kill = v2.map(|(base, _)| base).filter(|base| can_kill(base));
        Ok(found)
    }

    pub fn missing(&self) -> Vec<(Mechanism, String)> {
        [
            (Mechanism::CpuLimit, self.cpu.is_none()),
            (Mechanism::MemoryLimit, self.memory.is_none()),
            (Mechanism::PidsLimit, self.pids.is_none()),
        ]
        .into_iter()
        .filter(|(_, missing)| *missing)
        .map(|(mechanism, _)| (mechanism, self.why_not.clone()))
        .collect()
    }

    /// Every directory in which this instance creates groups, without duplicates.
    pub(crate) fn bases(&self) -> Vec<PathBuf> {
        let hierarchies = [&self.memory, &self.cpu, &self.pids];
        let mut bases: Vec<PathBuf> = hierarchies
            .into_iter()
            .flatten()
            .map(|hierarchy| hierarchy.path.clone())
            .collect();
        bases.extend(self.kill.clone());
        bases.sort();
        bases.dedup();
        bases
    }

    /// Returns true if a whole group can be killed at once.
    pub fn kills(&self) -> bool {
        self.kill.is_some()
    }

    pub fn any(&self) -> bool {
        !self.bases().is_empty()
    }

    /// Kills and removes the groups of boxes that were not adopted. Blocks until the kernel has released
    /// the killed processes.
    pub(crate) fn remove_leftovers(&self, is_wanted: impl Fn(&str) -> bool) {
        leftovers::end(&self.bases(), is_wanted);
    }

    /// Removes the instance's directories, and the common parent if it is empty.
    pub(crate) fn remove_base(&self) {
        for base in self.bases() {
            let _ = fs::remove_dir(&base);
            if let Some(parent) = base.parent() {
                let _ = fs::remove_dir(parent);
            }
        }
    }
}

/// Logs why a hierarchy cannot be used, such as a read-only mount.
fn usable<T>(mount: &Path, prepared: io::Result<T>) -> Option<T> {
    let warn =
        |error: &_| tracing::warn!(%error, path = %mount.display(), "failed to create cgroups");
    prepared.inspect_err(warn).ok()
}

/// Creates the instance's directory and returns its controllers.
fn prepare_v2(mount: &Path, instance: &str) -> io::Result<(PathBuf, Vec<String>)> {
    let base = mount.join(PARENT).join(instance);
    remove_dead(&base);
    make_base(&base)?;
    let controllers = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap_or_default();
    Ok((
        base,
        controllers.split_whitespace().map(str::to_owned).collect(),
    ))
}

/// Creates an instance's directory; on a v2 hierarchy the controllers are enabled for it.
fn make_base(base: &Path) -> io::Result<()> {
    fs::create_dir_all(base)?;
    let mut levels: Vec<&Path> = base.ancestors().take(3).collect();
    levels.reverse();
    for controller in ["memory", "cpu", "pids"] {
        for level in &levels {
            // One at a time: a controller that is attached to a v1 hierarchy is refused.
            if fs::write(
                level.join("cgroup.subtree_control"),
                format!("+{controller}"),
            )
            .is_err()
            {
                break;
            }
        }
    }
    Ok(())
}

/// Creates the group of a box. A starting daemon removes the directory of an instance that has no box, so
/// the directory may have to be created again.
fn make_group(directory: &Path) -> io::Result<()> {
    const ATTEMPTS: usize = 20;
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    for _ in 1..ATTEMPTS {
        match fs::create_dir(directory) {
            Err(error) if is_missing(&error) => {}
            outcome => return outcome,
        }
        match directory.parent().map(make_base) {
            Some(Err(error)) if !is_missing(&error) => return Err(error),
            _ => {}
        }
    }
    fs::create_dir(directory)
}

/// `cgroup.kill` exists since Linux 5.14.
fn can_kill(base: &Path) -> bool {
    base.join("cgroup.kill").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_created_even_if_the_instance_directory_was_removed() {
        let mount = tempfile::tempdir().expect("a directory");
        let base = mount.path().join(PARENT).join("instance");
        let group = base.join("b1-0");
        make_group(&group).expect("the directory above it is made");
        assert!(group.is_dir());
        fs::remove_dir_all(mount.path().join(PARENT)).expect("removed");
        make_group(&group).expect("it is made again");
        let error = make_group(&group).expect_err("it is there");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
