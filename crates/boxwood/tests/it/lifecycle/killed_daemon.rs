//! A daemon whose boxes end with it is killed. No process remains, and the next daemon removes all other leftovers.

use std::fs;
use std::path::Path;

use crate::support::daemon::Daemon;
use crate::support::host::{pids, token, wait_until, waiting};

#[test]
fn boxes_without_a_grace_die_with_a_killed_daemon_and_the_next_one_clears_up() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut first = Daemon::start_with(directory, &[("BOXWOOD_RECOVERY__GRACE_SEC", "0")]);
    let token = token("aftermath");
    let program = waiting(&token);
    first.run(&["start", "s", "--", "sh", "-c", &program]).ok();
    wait_until("the process to run", || !pids(&token).is_empty());
    let directory = first.kill();
    wait_until("its processes to end", || pids(&token).is_empty());

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
