//! Limits, counters and whole-tree kills through cgroups: v1, v2, and hosts with both.
//!
//! Comes in: limits and pids. Goes out: a group per box, a sub-group per command. Never here: moving
//! a process after its birth on the way of a request; that costs an RCU grace period (8 ms), so
//! blanks are moved ahead of time and commands are born where they belong.

mod freeze;
mod group;
mod hosts;
mod kill_all;
mod reopen;
mod sweep;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use boxwood_api::Mechanism;
use boxwood_backend::StartError;

use crate::mapping::Mapping;
pub(crate) use group::{Counters, ExecGroup};
pub use group::{Group, PROCESSES_OF_OURS};
use hosts::Mounts;
pub(crate) use reopen::GroupRecord;
use sweep::{remove_tree, sweep_dead, sweep_stale};

const PARENT: &str = "boxwood";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Where one controller's groups of this instance live.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) version: Version,
    pub(crate) base: PathBuf,
}

#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    pub(crate) memory: Option<Place>,
    pub(crate) cpu: Option<Place>,
    pub(crate) pids: Option<Place>,
    /// A v2 hierarchy, with or without controllers: it can kill a whole group.
    pub(crate) kill: Option<PathBuf>,
    why_not: String,
}

impl Cgroups {
    /// Finds the hierarchies and makes this instance's place in them, removing empty groups that
    /// dead daemons left there. Whoever lives may be wanted: see [`Cgroups::settle`].
    pub(crate) fn detect(instance: &str, mapping: &Mapping) -> Result<Self, StartError> {
        if !mapping.is_root() {
            let why_not = "cgroups need root (or a delegated group, which is not supported yet)";
            return Ok(Self {
                why_not: why_not.to_owned(),
                ..Self::default()
            });
        }
        let mounts = Mounts::read().map_err(|source| StartError::Step {
            step: "read the host's cgroup mounts".to_owned(),
            source,
        })?;
        sweep_stale(&mounts);
        let mut found = Self {
            why_not: "no cgroup hierarchy of this host has it".to_owned(),
            ..Self::default()
        };
        let two = mounts
            .two
            .as_ref()
            .and_then(|mount| prepare_two(mount, instance).ok());
        let place = |controller: &str| -> Option<Place> {
            if let Some(mount) = mounts.one.get(controller) {
                let base = mount.join(PARENT).join(instance);
                sweep_dead(&base);
                fs::create_dir_all(&base).ok()?;
                return Some(Place {
                    version: Version::One,
                    base,
                });
            }
            let (base, controllers) = two.as_ref()?;
            let has = controllers.iter().any(|known| known == controller);
            has.then(|| Place {
                version: Version::Two,
                base: base.clone(),
            })
        };
        found.memory = place("memory");
        found.cpu = place("cpu");
        found.pids = place("pids");
        found.kill = two.map(|(base, _)| base).filter(|base| can_kill(base));
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

    /// Every directory in which a box of this instance has a group, each once.
    pub(crate) fn bases(&self) -> Vec<PathBuf> {
        let places = [&self.memory, &self.cpu, &self.pids];
        let mut bases: Vec<PathBuf> = places
            .into_iter()
            .flatten()
            .map(|place| place.base.clone())
            .collect();
        bases.extend(self.kill.clone());
        bases.sort();
        bases.dedup();
        bases
    }

    /// A cgroup counts the processes of each box.
    pub fn counts_processes(&self) -> bool {
        self.pids.is_some()
    }

    /// A whole group can be killed at once.
    pub fn kills(&self) -> bool {
        self.kill.is_some()
    }

    pub fn any(&self) -> bool {
        !self.bases().is_empty()
    }

    /// Ends and removes the groups of boxes that are nobody's any more. Blocks while the kernel lets go
    /// of the dead.
    pub(crate) fn settle(&self, is_wanted: impl Fn(&str) -> bool) {
        sweep::end(&self.bases(), is_wanted);
    }

    /// Removes the instance's own directories, and the common parent when nobody else is in it.
    pub(crate) fn remove_base(&self) {
        for base in self.bases() {
            let _ = fs::remove_dir(&base);
            if let Some(parent) = base.parent() {
                let _ = fs::remove_dir(parent);
            }
        }
    }
}

/// Makes the instance's directory and tells which controllers it has.
fn prepare_two(mount: &Path, instance: &str) -> io::Result<(PathBuf, Vec<String>)> {
    let base = mount.join(PARENT).join(instance);
    sweep_dead(&base);
    make_base(&base)?;
    let controllers = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap_or_default();
    Ok((
        base,
        controllers.split_whitespace().map(str::to_owned).collect(),
    ))
}

/// Makes an instance's directory; on a v2 hierarchy the controllers are handed down to it.
fn make_base(base: &Path) -> io::Result<()> {
    fs::create_dir_all(base)?;
    let mut levels: Vec<&Path> = base.ancestors().take(3).collect();
    levels.reverse();
    for wanted in ["memory", "cpu", "pids"] {
        for level in &levels {
            // One at a time: a controller that a v1 hierarchy has is not there to hand down.
            if fs::write(level.join("cgroup.subtree_control"), format!("+{wanted}")).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Makes the group of a box. Another daemon that starts removes an instance's directory when it finds
/// no box in it, so the directory may have to be made again.
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

/// `cgroup.kill` came with 5.14.
fn can_kill(base: &Path) -> bool {
    base.join("cgroup.kill").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_made_also_where_another_daemon_removed_the_directory_of_the_instance() {
        let mount = tempfile::tempdir().expect("a directory");
        let base = mount.path().join(PARENT).join("instance");
        let group = base.join("b1-0");
        make_group(&group).expect("the directory above it is made");
        assert!(group.is_dir());
        fs::remove_dir_all(mount.path().join(PARENT)).expect("removed");
        make_group(&group).expect("it is made again");
        let again = make_group(&group).expect_err("it is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
