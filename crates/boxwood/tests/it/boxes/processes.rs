//! Managed processes and events of a real daemon.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::command::hide;
use crate::support::daemon::Daemon;
use crate::support::host::wait_until;

const ECHO: &str = "while read line; do echo \"got $line\"; echo \"saw $line\" >&2; done";

#[test]
fn a_managed_process_is_started_spoken_to_and_stopped() {
    let daemon = Daemon::start();
    let started = daemon.run(&[
        "start", "s", "--id", "echo", "-e", "A=1", "--", "sh", "-c", ECHO,
    ]);
    assert_eq!(started.ok(), "echo\n");
    assert!(daemon.run(&["ps", "s"]).ok().contains("running"));

    // One line in, one line out; the process keeps running after the client disconnects.
    let mut child = daemon
        .command(&["attach", "s", "echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("boxwood runs");
    let mut stdin = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut stdin, b"hello\n").expect("written");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("output");
    assert_eq!(line, "got hello\n");
    child.kill().expect("killed");
    child.wait().expect("ended");

    // Each stream is logged at its own time.
    wait_until("both streams to be logged", || {
        let logs = daemon.run(&["logs", "s", "echo"]);
        logs.stdout == "got hello\n" && logs.stderr == "saw hello\n"
    });
    let again = daemon.run(&["start", "s", "--id", "echo", "--", "true"]);
    assert_eq!(again.code, Some(1), "{}", again.all());
    assert!(again.stderr.contains("hint: "), "{}", again.stderr);
    assert_eq!(daemon.run(&["stop", "s", "echo"]).ok(), "echo\n");
    assert!(!daemon.run(&["ps", "s"]).ok().contains("running"));
}

#[test]
fn a_process_is_json_for_programs() {
    let daemon = Daemon::start();
    let started = daemon.run(&[
        "start",
        "s",
        "-o",
        "json",
        "-e",
        "SECRET=hidden",
        "--",
        "sleep",
        "600",
    ]);
    let process: Value = serde_json::from_str(&started.ok()).expect("JSON");
    insta::assert_json_snapshot!(hide(process, &["/started_at"]), @r#"
    {
      "args": [
        "600"
      ],
      "attached": false,
      "command": "sleep",
      "cwd": "/workspace",
      "env_keys": [
        "SECRET"
      ],
      "exit_code": null,
      "exited_at": null,
      "process_id": "default",
      "session_id": "s",
      "started_at": "[hidden]",
      "status": "running",
      "stderr_preview": ""
    }
    "#);
}

#[test]
fn a_signal_ends_it_and_the_list_says_how() {
    let daemon = Daemon::start();
    daemon.run(&["start", "s", "--", "sleep", "600"]).ok();
    daemon.run(&["kill", "-s", "KILL", "s"]).ok();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let table = daemon.run(&["ps", "s"]).ok();
        if table.contains("exited 137") {
            break;
        }
        assert!(Instant::now() < deadline, "{table}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn logs_can_be_followed_to_the_end() {
    let daemon = Daemon::start();
    let script = "for i in 1 2 3; do echo line $i; sleep 0.3; done";
    daemon.run(&["start", "s", "--", "sh", "-c", script]).ok();
    let logs = daemon.run(&["logs", "-f", "s"]);
    assert_eq!(logs.ok(), "line 1\nline 2\nline 3\n");
}

#[test]
fn events_are_printed_as_they_happen() {
    let daemon = Daemon::start();
    let mut watcher = daemon
        .command(&["events", "-o", "json", "--session", "s"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("boxwood runs");
    let mut lines = BufReader::new(watcher.stdout.take().expect("piped")).lines();
    // The watcher is connected once it prints an event. Create sessions until then.
    let (sender, events) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while let Some(Ok(line)) = lines.next() {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    let first = loop {
        daemon.run(&["create", "s"]).ok();
        daemon.run(&["create", "unwatched"]).ok();
        if let Ok(line) = events.recv_timeout(Duration::from_millis(300)) {
            break line;
        }
        assert!(Instant::now() < deadline, "no event came");
        daemon.run(&["rm", "s"]).ok();
    };
    daemon.run(&["exec", "s", "--", "sh", "-c", "exit 3"]);
    daemon.run(&["rm", "s"]).ok();
    let mut kinds = Vec::new();
    let mut line = first;
    loop {
        let event: Value = serde_json::from_str(&line).expect("one JSON object per line");
        assert_eq!(event["session_id"], "s");
        let kind = event["event"].as_str().expect("a kind").to_owned();
        let is_last = kind == "session_deleted" && kinds.contains(&"exec_finished".to_owned());
        kinds.push(kind);
        if is_last {
            break;
        }
        line = events
            .recv_timeout(Duration::from_secs(10))
            .expect("the next event");
    }
    watcher.kill().expect("killed");
    watcher.wait().expect("ended");
    let tail = &kinds[kinds.len() - 3..];
    assert_eq!(tail, ["exec_started", "exec_finished", "session_deleted"]);
}
