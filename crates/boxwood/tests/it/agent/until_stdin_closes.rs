//! `boxwood serve --until-stdin-closes`, as the child process of another program.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::command::boxwood;
use crate::support::host::{pids, token, wait_until, waiting};

/// Also if the parent process is killed.
#[test]
fn a_daemon_ends_with_its_stdin_and_takes_its_boxes_along() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let state_dir = directory.path().join("s");
    let mut daemon = boxwood()
        .args([
            "serve",
            "--until-stdin-closes",
            "--listen",
            "none",
            "--state-dir",
        ])
        .arg(&state_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("boxwood serve starts");
    let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
    let line = lines.next().expect("a line").expect("text");
    let socket = state_dir.join("run/boxwood.sock");
    let url = format!("unix://{}", socket.display());
    assert!(line.contains(&url), "{line}");
    let token = token("lifeline");
    let started = boxwood()
        .args([
            "--url",
            &url,
            "start",
            "s",
            "--id",
            "p",
            "--",
            "sh",
            "-c",
            &waiting(&token),
        ])
        .status();
    assert!(started.expect("boxwood runs").success());
    wait_until("the process", || !pids(&token).is_empty());
    // As if the parent process is killed: its log has no reader either.
    drop(daemon.stderr.take());
    drop(daemon.stdin.take());
    let ended = daemon.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0));
    assert!(pids(&token).is_empty());
    assert!(!socket.exists());
}
