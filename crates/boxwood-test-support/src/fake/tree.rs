//! Finds every process of a box or of one program, and signals it.
//!
//! Without namespaces or cgroups there is only what `/proc` shows: a mark in the environment,
//! which children inherit, and who is whose child. A program that clears its environment *and*
//! leaves its parents behind gets away; this backend promises no isolation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Rounds of killing: each finds what was forked during the one before.
const ROUNDS: usize = 50;

/// Kills everything that carries the mark, until nothing does.
pub(super) fn kill_marked(mark: &str) {
    for _ in 0..ROUNDS {
        if signal_marked(mark, Signal::KILL) == 0 {
            return;
        }
    }
}

/// Stops everything that carries the mark, until nothing of it runs.
pub(super) fn stop_marked(mark: &str) {
    for _ in 0..ROUNDS {
        let running = marked(mark)
            .into_iter()
            .filter(|pid| state_and_parent(*pid).is_some_and(|(state, _)| state != 'T'));
        let running: Vec<_> = running.filter_map(Pid::from_raw).collect();
        if running.is_empty() {
            return;
        }
        for pid in running {
            let _ = kill_process(pid, Signal::STOP);
        }
        // The kernel stops a process when it next looks.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Returns how many processes were there to be signalled.
pub(super) fn signal_marked(mark: &str, signal: Signal) -> usize {
    let found = marked(mark);
    for pid in &found {
        // One that has just ended needs no signal.
        if let Some(pid) = Pid::from_raw(*pid) {
            let _ = kill_process(pid, signal);
        }
    }
    found.len()
}

/// The marked processes and their descendants, without the dead.
fn marked(mark: &str) -> BTreeSet<i32> {
    let mut parents = BTreeMap::new();
    let mut found = BTreeSet::new();
    let Ok(entries) = fs::read_dir("/proc") else {
        return found;
    };
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Some((state, parent)) = state_and_parent(pid) else {
            continue;
        };
        if matches!(state, 'Z' | 'X') {
            continue;
        }
        parents.insert(pid, parent);
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
        let children = parents
            .iter()
            .filter(|(_, parent)| found.contains(*parent))
            .map(|(pid, _)| *pid);
        let children: Vec<_> = children.collect();
        found.extend(children);
        if found.len() == before {
            return found;
        }
    }
}

/// From `/proc/PID/stat`: the fields after the name, which may hold spaces and brackets itself.
fn state_and_parent(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some((state, parent))
}
