//! Groups that nobody follows any more.
//!
//! A box may outlive its daemon, so that the maker of a group is dead says nothing about the group. Only
//! empty ones go without being asked about.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::PARENT;
use super::hosts::Mounts;
use crate::net::Networks;
use crate::{instance, names};

const PAUSE: Duration = Duration::from_millis(5);
const TRIES: usize = 400;

/// Clears up after processes that were killed and that nobody follows: single commands, and daemons
/// whose state directory went with them.
pub(super) fn sweep_stale(mounts: &Mounts) {
    for mount in mounts.one.values().chain(&mounts.two) {
        for found in directories(&mount.join(PARENT)) {
            let name = found.file_name().and_then(|name| name.to_str());
            let Some(name) = name else { continue };
            if instance::is_stale(name) {
                // Boxes of a single command end with it, and nobody takes them over.
                end(std::slice::from_ref(&found), |_| false);
                let _ = fs::remove_dir(&found);
                if let Err(error) = Networks::sweep(name) {
                    tracing::warn!(%error, "leftovers of an earlier network were not removed");
                }
                continue;
            }
            // A living instance has no dead one's boxes that are empty: it removed them when it began.
            if sweep_dead(&found) > 0 {
                let _ = fs::remove_dir(&found);
            }
        }
    }
}

/// Removes the groups below `base` whose maker is dead and that nobody lives in. Tells how many.
pub(super) fn sweep_dead(base: &Path) -> usize {
    let dead = directories(base).into_iter().filter(|group| {
        let name = group.file_name().and_then(|name| name.to_str());
        name.is_some_and(names::maker_is_dead) && members(group).is_empty()
    });
    dead.map(|group| remove_tree(&group)).count()
}

/// Ends whoever is in a group below one of `bases` that is not wanted, and removes the group.
pub(super) fn end(bases: &[PathBuf], is_wanted: impl Fn(&str) -> bool) {
    let unwanted = |base: &PathBuf| {
        directories(base).into_iter().filter(|group| {
            let name = group.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| !is_wanted(name))
        })
    };
    let mut left: Vec<PathBuf> = bases.iter().flat_map(unwanted).collect();
    for _ in 0..TRIES {
        left.retain(|group| {
            kill(group);
            remove_tree(group);
            group.is_dir()
        });
        if left.is_empty() {
            return;
        }
        thread::sleep(PAUSE);
    }
    for group in left {
        tracing::warn!(path = %group.display(), "a cgroup of an earlier run could not be removed");
    }
}

fn kill(group: &Path) {
    if fs::write(group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    // Where the hierarchy cannot, one by one. Whoever forks meanwhile is met at the next look.
    for pid in members(group) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Everybody in the group and below it.
fn members(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for below in directories(group) {
        found.extend(members(&below));
    }
    found
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes directories only: the files in a cgroup are the kernel's and go with it.
pub(super) fn remove_tree(path: &Path) {
    for below in directories(path) {
        remove_tree(&below);
    }
    let _ = fs::remove_dir(path);
}
