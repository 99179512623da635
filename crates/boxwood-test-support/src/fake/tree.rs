//! Finds every process of a box or of one program, and signals it.
//!
//! Without namespaces or cgroups there is only what `/proc` shows: a mark in the environment,
//! which children inherit, and the parents. A program that clears its environment *and* leaves its
//! parents is not found; this backend promises no isolation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Time limit for stopping or killing all processes.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);
/// Scans without a result. A process that only forks the next may be missed by one scan.
const EMPTY_SCANS: usize = 2;

/// Kills everything that carries the mark, until nothing does.
pub(super) fn kill_marked(mark: &str) {
    let deadline = Instant::now() + TIMEOUT;
    let mut empty = 0;
    while empty < EMPTY_SCANS && Instant::now() < deadline {
        let found = marked(mark);
        if found.is_empty() {
            empty += 1;
        } else {
            empty = 0;
            kill(&found);
        }
        thread::sleep(PAUSE);
    }
}

/// Also kills their process groups, which contain the children of processes that have forked and ended meanwhile.
fn kill(found: &BTreeMap<i32, ProcessStat>) {
    let own_group = rustix::process::getpgrp();
    let groups: BTreeSet<_> = found.values().map(|process| process.group).collect();
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        if group != own_group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    for pid in found.keys().copied().filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Stops everything that carries the mark, until nothing of it runs or `should_continue` returns false.
pub(super) fn stop_marked(mark: &str, should_continue: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while should_continue() && Instant::now() < deadline {
        let found = marked(mark).into_iter();
        let running: Vec<_> = found
            .filter(|(_, process)| process.state != 'T')
            .filter_map(|(pid, _)| Pid::from_raw(pid))
            .collect();
        if running.is_empty() {
            return;
        }
        for pid in running {
            let _ = kill_process(pid, Signal::STOP);
        }
        // The kernel stops a process asynchronously.
        thread::sleep(PAUSE);
    }
}

/// Sends a signal to everything that carries the mark now.
pub(super) fn signal_marked(mark: &str, signal: Signal) {
    for pid in marked(mark).into_keys().filter_map(Pid::from_raw) {
        // Fails if the process has just ended.
        let _ = kill_process(pid, signal);
    }
}

/// The state of a living process.
struct ProcessStat {
    state: char,
    parent: i32,
    group: i32,
}

/// The marked processes and their descendants, without the dead.
fn marked(mark: &str) -> BTreeMap<i32, ProcessStat> {
    let mut all = BTreeMap::new();
    let mut found = BTreeSet::new();
    for pid in processes() {
        let Some(process) = process_stat(pid) else {
            continue;
        };
        if matches!(process.state, 'Z' | 'X') {
            continue;
        }
        all.insert(pid, process);
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == mark.as_bytes())
        {
            found.insert(pid);
        }
    }
    loop {
        let before = found.len();
        let children = all
            .iter()
            .filter(|(_, process)| found.contains(&process.parent))
            .map(|(pid, _)| *pid);
        let children: Vec<_> = children.collect();
        found.extend(children);
        if found.len() == before {
            all.retain(|pid, _| found.contains(pid));
            return all;
        }
    }
}

/// Newest first, because they may end soonest.
fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<i32> = pids.collect();
    pids.sort_unstable_by(|one, other| other.cmp(one));
    pids
}

/// From `/proc/PID/stat`: the fields after the name, which may hold spaces and brackets itself.
fn process_stat(pid: i32) -> Option<ProcessStat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some(ProcessStat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
    })
}
