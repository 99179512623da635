//! Processes and cgroups of boxes on this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// The command line of every process, separated by spaces.
pub(crate) fn command_lines() -> Vec<(i32, String)> {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    processes
        .filter_map(|process| {
            let pid = process.file_name().to_string_lossy().parse().ok()?;
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            Some((pid, line))
        })
        .collect()
}

/// How many processes have this marker in their command line. A shell that is about to run something is
/// there twice for a moment, and counts once.
pub(crate) fn running(marker: &str) -> usize {
    let lines = command_lines();
    let named = lines.iter().filter(|(_, line)| line.contains(marker));
    let pids: Vec<i32> = named.map(|(pid, _)| *pid).collect();
    let is_child = |pid: &&i32| parent(**pid).is_some_and(|parent| pids.contains(&parent));
    pids.len() - pids.iter().filter(is_child).count()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// A marker that no other test uses.
pub(crate) fn marker(of: &str) -> String {
    format!("boxwood-{of}-{}", std::process::id())
}

/// Cgroups of a container, by the id in their names.
pub(crate) fn cgroups_of(container_id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(container_id) {
                found.push(entry.path());
            } else {
                open.push(entry.path());
            }
        }
    }
    found
}

/// The start time of a process, which distinguishes it from a later one with the same pid.
pub(crate) fn began(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

pub(crate) fn children_of(parent: u32) -> Vec<i32> {
    let parent_pid = parent.to_string();
    let is_child = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        parent.is_some_and(|pid| pid.trim() == parent_pid)
    };
    let all = command_lines();
    all.into_iter()
        .map(|(pid, _)| pid)
        .filter(|&pid| is_child(pid))
        .collect()
}
