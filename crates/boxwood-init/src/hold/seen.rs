//! What `/proc` tells of who stands still, and of who only seems about to.
//!
//! Comes in: the number of a process. Goes out: whether it stands, is about to, runs, or leaves. Never
//! here: signals.
//!
//! Everything is text that the kernel made, about somebody who may be gone by the next line. Nothing at
//! all is said of the dead.

use std::collections::BTreeSet;
use std::fs;

use boxwood_sys::procfs;

/// The bit of a signal in the masks of `/proc/PID/status`.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Of a task that has begun to end; no signal reaches it any more.
const PF_EXITING: u64 = 0x4;

/// How somebody takes the signal to stop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Posture {
    /// Stopped or dead, with all threads.
    Still,
    /// Has the signal, and comes to it once the kernel lets go of it. These threads do not stand yet.
    Stopping(Vec<i32>),
    /// Has no such signal, or not any more. These threads do not stand.
    Running(Vec<i32>),
    /// Ends, and runs nothing of its own any more.
    Leaving,
}

pub(super) fn posture(pid: i32) -> Posture {
    if stand_still(&[pid]) {
        return Posture::Still;
    }
    // The signals first, the state behind them: a thread that takes the one enters the other at once.
    let statuses = threads(pid).into_iter().map(|thread| {
        let status = procfs::text(format!("/proc/{pid}/task/{thread}/status"));
        (thread, status.unwrap_or_default())
    });
    let statuses: Vec<(i32, String)> = statuses.collect();
    let has = |signal| statuses.iter().any(|(_, text)| is_pending(text, signal));
    let (is_told, is_killed) = (has(libc::SIGSTOP), has(libc::SIGKILL));
    let (mut moving, mut stopped) = (Vec::new(), false);
    for (thread, _) in &statuses {
        let stat = procfs::text(format!("/proc/{pid}/task/{thread}/stat"));
        let stat = stat.unwrap_or_default();
        if !stands(&stat) && !is_exiting(&stat) {
            moving.push(*thread);
        }
        stopped |= state(&stat) == Some('T');
    }
    if moving.is_empty() || is_killed {
        return Posture::Leaving;
    }
    // Whoever is the first to take it stops all threads, each where it next comes out of the kernel.
    if is_told || stopped {
        Posture::Stopping(moving)
    } else {
        Posture::Running(moving)
    }
}

pub(super) fn stand_still(pids: &[i32]) -> bool {
    pids.iter().all(|pid| {
        threads(*pid).into_iter().all(|thread| {
            let stat = procfs::text(format!("/proc/{pid}/task/{thread}/stat"));
            stands(&stat.unwrap_or_default())
        })
    })
}

/// The process as a whole, where that much is known: its threads stop and go on together.
pub(super) fn is_stopped(pid: i32) -> bool {
    state(&stat(pid)) == Some('T')
}

/// Whether it was stopped already when everybody was told to.
pub(super) fn was_stopped(pid: i32) -> bool {
    is_stopped_twice(&status(pid))
}

/// Whether it stands or is about to.
pub(super) fn is_to_stop(pid: i32) -> bool {
    is_stopped(pid) || is_pending(&status(pid), libc::SIGSTOP)
}

/// In the order of their numbers.
pub(super) fn others(spared: &[i32]) -> Vec<i32> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut pids = numbers("/proc");
    pids.retain(|pid| *pid != own && !spared.contains(pid));
    pids
}

/// Puts everybody who descends from one of `roots` among them. Parents may be younger than their
/// children, where numbers have begun anew.
pub(super) fn add_descendants(roots: &mut BTreeSet<i32>) {
    let everybody = numbers("/proc").into_iter();
    let parents: Vec<(i32, i32)> = everybody
        .filter_map(|pid| Some((pid, parent(&stat(pid))?)))
        .collect();
    loop {
        let before = roots.len();
        let found = parents.iter().filter(|(_, parent)| roots.contains(parent));
        let found: Vec<i32> = found.map(|(pid, _)| *pid).collect();
        roots.extend(found);
        if roots.len() == before {
            return;
        }
    }
}

pub(super) fn stat(pid: i32) -> String {
    procfs::text(format!("/proc/{pid}/stat")).unwrap_or_default()
}

fn status(pid: i32) -> String {
    procfs::text(format!("/proc/{pid}/status")).unwrap_or_default()
}

fn threads(pid: i32) -> Vec<i32> {
    numbers(&format!("/proc/{pid}/task"))
}

fn numbers(directory: &str) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<i32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// What stands behind the name, in which anything may stand: state, parent, process group, session,
/// terminal, its group, flags.
fn field<T: std::str::FromStr>(stat: &str, at: usize) -> Option<T> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(at)?.parse().ok()
}

fn state(stat: &str) -> Option<char> {
    field(stat, 0)
}

fn parent(stat: &str) -> Option<i32> {
    field(stat, 1)
}

pub(super) fn has_terminal(stat: &str) -> bool {
    field::<i64>(stat, 4).is_some_and(|number| number != 0)
}

fn is_exiting(stat: &str) -> bool {
    field::<u64>(stat, 6).is_some_and(|flags| flags & PF_EXITING != 0)
}

pub(super) fn stands(stat: &str) -> bool {
    matches!(state(stat), None | Some('T' | 't' | 'Z' | 'X'))
}

fn is_pending(status: &str, signal: i32) -> bool {
    ["SigPnd:", "ShdPnd:"]
        .iter()
        .any(|name| mask(status, name) & bit(signal) != 0)
}

/// By the signal for all, which the stopped do not take. Those to single threads are somebody else's
/// doing: ours, for one.
fn is_stopped_twice(status: &str) -> bool {
    let state = line(status, "State:").unwrap_or_default();
    state.starts_with('T') && mask(status, "ShdPnd:") & bit(libc::SIGSTOP) != 0
}

fn mask(status: &str, name: &str) -> u64 {
    let text = line(status, name).unwrap_or_default();
    u64::from_str_radix(text, 16).unwrap_or_default()
}

fn line<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    found.map(str::trim)
}
