//! Removes groups of dead daemons.
//!
//! A box may outlive its daemon, so the death of the creator does not make a group a leftover. Only empty
//! groups are removed unconditionally.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use boxwood_api::with_causes;
use rustix::process::{Pid, Signal, kill_process};

use super::PARENT;
use super::hierarchies::Mounts;
use crate::host::{instance, names};
use crate::network::Networks;

const PAUSE: Duration = Duration::from_millis(5);
const ATTEMPTS: usize = 400;

/// Removes the groups of instances that no daemon will adopt: single commands, and daemons whose state
/// directory is gone.
pub(super) fn remove_stale(mounts: &Mounts) {
    for mount in mounts.v1.values().chain(&mounts.v2) {
        for found in directories(&mount.join(PARENT)) {
            let Some(name) = name_of(&found) else {
                continue;
            };
            if instance::is_stale(name) {
                // Boxes of a single command end with it and are never adopted.
                end(std::slice::from_ref(&found), |_| false);
                let _ = fs::remove_dir(&found);
                if let Err(error) = Networks::remove_instance(name) {
                    tracing::warn!(error = %with_causes(&error), instance = name, "failed to remove the network of a dead instance");
                }
                continue;
            }
            // The daemon of a running instance has removed such groups when it started, so this one is not
            // running, and its directory is not needed.
            if remove_dead(&found) > 0 {
                let _ = fs::remove_dir(&found);
            }
        }
    }
}

/// Removes empty groups below `base` whose creator is dead. Returns how many.
pub(super) fn remove_dead(base: &Path) -> usize {
    let dead = directories(base).into_iter().filter(|group| {
        name_of(group).is_some_and(names::creator_is_dead) && members(group).is_empty()
    });
    dead.map(|group| remove_tree(&group)).count()
}

/// Kills the processes of unwanted groups below `bases` and removes the groups.
pub(super) fn end(bases: &[PathBuf], is_wanted: impl Fn(&str) -> bool) {
    let unwanted = |base: &PathBuf| {
        let groups = directories(base).into_iter();
        groups.filter(|group| name_of(group).is_some_and(|name| !is_wanted(name)))
    };
    let mut leftovers: Vec<PathBuf> = bases.iter().flat_map(unwanted).collect();
    for _ in 0..ATTEMPTS {
        leftovers.retain(|group| {
            kill(group);
            remove_tree(group);
            group.is_dir()
        });
        if leftovers.is_empty() {
            return;
        }
        thread::sleep(PAUSE);
    }
    for group in leftovers {
        tracing::warn!(path = %group.display(), "failed to remove a leftover cgroup");
    }
}

fn kill(group: &Path) {
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    // Without `cgroup.kill`, one by one. New children are found in the next round.
    for pid in members(group) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn name_of(group: &Path) -> Option<&str> {
    group.file_name()?.to_str()
}

/// Pids in the group and below it.
fn members(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for below in directories(group) {
        found.extend(members(&below));
    }
    found
}

pub(super) fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes directories only: the files of a cgroup are removed by the kernel.
pub(super) fn remove_tree(path: &Path) {
    for below in directories(path) {
        remove_tree(&below);
    }
    let _ = fs::remove_dir(path);
}
