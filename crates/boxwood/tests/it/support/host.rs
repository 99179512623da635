//! Processes of boxes, as seen from the host.

use std::fs;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_mins(1);

/// A word that is only in the command lines of this test's processes.
pub(crate) fn token(name: &str) -> String {
    format!("boxwood-{name}-{}", std::process::id())
}

/// A shell program that runs until it is ended, with `token` on its command line.
pub(crate) fn waiting(token: &str) -> String {
    format!("while :; do sleep 1; : {token}; done")
}

/// The host's pids of processes in boxes that have `token` on their command lines.
pub(crate) fn pids(token: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let numbered = processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        Some((pid, fs::read(process.path().join("cmdline")).ok()?))
    });
    // The client's own command line names the program; the box's shell is the program.
    let mut pids: Vec<u32> = numbered
        .filter(|(_, line)| {
            let line = String::from_utf8_lossy(line);
            line.contains(token) && !line.contains("start\0")
        })
        .map(|(pid, _)| pid)
        .collect();
    // After `fork` and before `exec` a shell is counted twice.
    let all = pids.clone();
    pids.retain(|pid| parent(*pid).is_none_or(|parent| !all.contains(&parent)));
    pids.sort_unstable();
    pids
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < WITHIN, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
