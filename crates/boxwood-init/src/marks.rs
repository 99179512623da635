//! Holding a command's tree together where the kernel has neither cgroups nor subreapers (gVisor's).
//!
//! Every command gets a group that nobody else has. Its descendants inherit it, whatever they do to get
//! away, and only a capability that none of them has could take it off. So a tree is everybody with its
//! mark, whether its root still lives or not.

use std::collections::BTreeSet;
use std::fs;

use boxwood_sys::clone::{self, exit_now};
use rustix::event::Timespec;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};

/// Far above what an image or a host gives to anybody.
const FIRST: u32 = 1 << 31;

/// Between two looks at a tree that is to die.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// The group of the command with this number. They repeat after two thousand million commands.
pub(crate) fn mark(id: u64) -> u32 {
    FIRST | (u32::try_from(id & u64::from(FIRST - 1)).unwrap_or_default())
}

/// Trees that are to die. One look is not enough: whoever forks meanwhile was not seen.
#[derive(Default)]
pub(crate) struct Marked {
    doomed: BTreeSet<u32>,
}

impl Marked {
    pub(crate) fn signal(&mut self, id: u64, signal: i32) {
        let mark = mark(id);
        match Signal::from_named_raw(signal) {
            Some(Signal::KILL) => {
                self.doomed.insert(mark);
            }
            Some(signal) => {
                for (_, pid) in bearers(&BTreeSet::from([mark])) {
                    let _ = kill_process(pid, signal);
                }
            }
            None => {}
        }
    }

    /// Kills everybody who is to die, until a look finds nobody. A command that `runs` may not have
    /// come to its mark yet.
    pub(crate) fn hunt(&mut self, runs: impl Fn(u32) -> bool) {
        if self.doomed.is_empty() {
            return;
        }
        let found = bearers(&self.doomed);
        for (_, pid) in &found {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let seen: BTreeSet<u32> = found.into_iter().map(|(mark, _)| mark).collect();
        self.doomed
            .retain(|mark| seen.contains(mark) || runs(*mark));
    }

    /// How long to wait until the next look.
    pub(crate) fn pause(&self) -> Option<Timespec> {
        (!self.doomed.is_empty()).then_some(PAUSE)
    }
}

/// Everybody alive with one of these marks, as far as one look tells.
fn bearers(marks: &BTreeSet<u32>) -> Vec<(u32, Pid)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
            let status = boxwood_sys::procfs::text(format!("/proc/{pid}/status")).ok()?;
            Some((borne(&status, marks)?, Pid::from_raw(pid)?))
        })
        .collect()
}

fn borne(status: &str, marks: &BTreeSet<u32>) -> Option<u32> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // The dead wait for their parent and can do nothing.
    if field("State:")?.trim_start().starts_with(['Z', 'X']) {
        return None;
    }
    field("Groups:")?
        .split_whitespace()
        .filter_map(|group| group.parse().ok())
        .find(|group| marks.contains(group))
}

/// Whether an ordinary process can be the last parent of its descendants here.
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
