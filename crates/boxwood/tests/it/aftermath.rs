//! What is left of a daemon that was killed: nothing that lives, and nothing the next one keeps.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;

const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn boxes_die_with_a_killed_daemon_and_the_next_one_clears_up() {
    let mut first = Daemon::start();
    let token = format!("boxwood-aftermath-{}", std::process::id());
    first
        .run(&[
            "start",
            "s",
            "--",
            "sh",
            "-c",
            &format!("while :; do sleep 1; : {token}; done"),
        ])
        .ok();
    assert!(
        runs(&token),
        "the process should be running before the kill"
    );
    let directory = first.kill();
    wait_until("its processes to end", || !runs(&token));

    let second = Daemon::start_in(directory);
    second.run(&["exec", "t", "--", "true"]).ok();
    let groups = groups_of(&second);
    assert!(
        groups
            .iter()
            .all(|name| name.starts_with(&format!("b{}-", second.pid()))),
        "groups of the dead daemon are left: {groups:?}"
    );
}

fn runs(token: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    processes
        .filter(|process| process.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        // The client's own command line names the session; the box's shell does not.
        .any(|line| {
            let line = String::from_utf8_lossy(&line);
            line.contains(token) && !line.contains("start\0")
        })
}

/// The cgroups of every box of this daemon's instance.
fn groups_of(daemon: &Daemon) -> Vec<String> {
    let mut names = Vec::new();
    for parent in ["/sys/fs/cgroup/pids/boxwood", "/sys/fs/cgroup/boxwood"] {
        for instance in fs::read_dir(parent).into_iter().flatten().flatten() {
            let boxes: Vec<String> = fs::read_dir(instance.path())
                .into_iter()
                .flatten()
                .flatten()
                .filter(|entry| Path::new(&entry.path()).is_dir())
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            if boxes
                .iter()
                .any(|name| name.starts_with(&format!("b{}-", daemon.pid())))
            {
                names.extend(boxes);
            }
        }
    }
    names
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < WITHIN, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
