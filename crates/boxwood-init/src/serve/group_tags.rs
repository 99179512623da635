//! Tracks the process tree of a command where the kernel has neither cgroups nor subreapers (gVisor).
//!
//! Every command gets a unique supplementary group. Its descendants inherit it and cannot drop it without a
//! capability that they do not have. The tree of a command is therefore every process with its group.

use std::collections::BTreeSet;

use boxwood_sys::clone::{self, exit_now};
use boxwood_sys::procfs;
use rustix::event::Timespec;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};

/// Above all group ids that images and hosts use.
const FIRST: u32 = 1 << 31;

/// Interval between scans for processes that are being killed.
const SCAN_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// The group of the command with this id. Groups repeat after 2^31 commands.
pub(crate) fn tag(id: u64) -> u32 {
    FIRST | (u32::try_from(id & u64::from(FIRST - 1)).unwrap_or_default())
}

/// Trees that are being killed. One scan is not enough: it misses processes that fork at the same time.
#[derive(Default)]
pub(crate) struct TaggedTrees {
    killing: BTreeSet<u32>,
}

impl TaggedTrees {
    pub(crate) fn signal(&mut self, id: u64, signal: i32) {
        let tag = tag(id);
        match Signal::from_named_raw(signal) {
            Some(Signal::KILL) => {
                self.killing.insert(tag);
            }
            Some(signal) => {
                for (_, pid) in find(&BTreeSet::from([tag])) {
                    let _ = kill_process(pid, signal);
                }
            }
            None => {}
        }
    }

    /// Kills the trees until a scan finds no process of them. A command that `runs` may not have set its
    /// group yet.
    pub(crate) fn kill_pending(&mut self, runs: impl Fn(u32) -> bool) {
        if self.killing.is_empty() {
            return;
        }
        let found = find(&self.killing);
        for (_, pid) in &found {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let seen: BTreeSet<u32> = found.into_iter().map(|(tag, _)| tag).collect();
        self.killing.retain(|tag| seen.contains(tag) || runs(*tag));
    }

    /// Time until the next scan.
    pub(crate) fn poll_timeout(&self) -> Option<Timespec> {
        (!self.killing.is_empty()).then_some(SCAN_INTERVAL)
    }
}

/// All live processes with one of these groups.
fn find(tags: &BTreeSet<u32>) -> Vec<(u32, Pid)> {
    procfs::pids()
        .filter_map(|pid| {
            let status = procfs::text(format!("/proc/{pid}/status")).ok()?;
            Some((tag_in(&status, tags)?, Pid::from_raw(pid)?))
        })
        .collect()
}

fn tag_in(status: &str, tags: &BTreeSet<u32>) -> Option<u32> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // Zombies only wait to be reaped.
    if field("State:")?.trim_start().starts_with(['Z', 'X']) {
        return None;
    }
    field("Groups:")?
        .split_whitespace()
        .filter_map(|group| group.parse().ok())
        .find(|group| tags.contains(group))
}

/// Whether the kernel supports `PR_SET_CHILD_SUBREAPER`.
pub(crate) fn has_subreapers() -> bool {
    // SAFETY: one thread.
    match unsafe { clone::plain_fork() } {
        Ok(None) => exit_now(i32::from(set_child_subreaper(Some(Pid::INIT)).is_err())),
        Ok(Some(child)) => {
            let ended = Pid::from_raw(child).map(|pid| waitpid(Some(pid), WaitOptions::empty()));
            matches!(ended, Some(Ok(Some((_, status)))) if status.exit_status() == Some(0))
        }
        Err(_) => false,
    }
}
