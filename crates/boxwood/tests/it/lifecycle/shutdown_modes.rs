//! Boxes are kept or removed when their daemon stops or is killed, as configured.

use std::time::Duration;

use serde_json::Value;

use crate::support::command::run;
use crate::support::daemon::{Daemon, serve_command};
use crate::support::host::{pids, token, wait_until, waiting};

const MODE: &str = "BOXWOOD_SHUTDOWN__BOXES";

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Starts a process in a session and tells the host's pid of it.
fn start_process(daemon: &Daemon, session: &str, token: &str) -> Vec<u32> {
    let program = waiting(token);
    daemon
        .run(&["start", session, "--id", "p", "--", "sh", "-c", &program])
        .ok();
    wait_until("the process to run", || pids(token).len() == 1);
    pids(token)
}

fn sessions(daemon: &Daemon) -> Vec<String> {
    let listed = daemon.run(&["ls", "-o", "json"]).ok();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let listed = listed.as_array().expect("a list").iter();
    let ids = listed.map(|session| session["session_id"].as_str().expect("an id").to_owned());
    ids.collect()
}

#[test]
fn a_daemon_that_is_told_to_stop_takes_its_boxes_with_it() {
    let token = token("stop");
    let mut daemon = Daemon::start();
    start_process(&daemon, "s", &token);
    assert_eq!(daemon.terminate(), Some(0));
    assert!(pids(&token).is_empty());
    let next = Daemon::start_in(daemon.leave_directory());
    assert_eq!(sessions(&next), [""; 0]);
}

#[test]
fn boxes_that_are_kept_go_on_under_the_next_daemon() {
    let token = token("keep");
    let mut daemon = Daemon::start_with(directory(), &[(MODE, "keep")]);
    let before = start_process(&daemon, "s", &token);
    daemon
        .run(&["exec", "s", "--", "sh", "-c", "echo kept > f"])
        .ok();
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(
        pids(&token),
        before,
        "the process lives on without a daemon"
    );

    let next = Daemon::start_in(daemon.leave_directory());
    assert_eq!(next.next_line(), "boxwood: 1 session adopted");
    assert_eq!(pids(&token), before);
    assert!(next.run(&["ps", "s"]).ok().contains("running"));
    assert_eq!(next.run(&["exec", "s", "--", "cat", "f"]).ok(), "kept\n");
    next.run(&["rm", "s"]).ok();
    assert!(pids(&token).is_empty());
}

#[test]
fn only_persistent_sessions_outlive_a_daemon_that_stops_the_others() {
    let (kept, passing) = (token("persistent"), token("passing"));
    let mut daemon = Daemon::start_with(directory(), &[(MODE, "stop_ephemeral")]);
    daemon.run(&["create", "kept", "--persistent"]).ok();
    let before = start_process(&daemon, "kept", &kept);
    start_process(&daemon, "passing", &passing);
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(pids(&kept), before);
    assert!(pids(&passing).is_empty());

    let next = Daemon::start_in(daemon.leave_directory());
    assert_eq!(sessions(&next), ["kept"]);
    assert_eq!(pids(&kept), before);
}

#[test]
fn a_killed_daemons_boxes_are_adopted() {
    let token = token("killed");
    let mut daemon = Daemon::start();
    let before = start_process(&daemon, "s", &token);
    let next = Daemon::start_in(daemon.kill());
    assert_eq!(next.next_line(), "boxwood: 1 session adopted");
    assert_eq!(sessions(&next), ["s"]);
    assert_eq!(pids(&token), before);
}

#[test]
fn boxes_of_a_killed_daemon_end_after_the_grace_period() {
    let token = token("grace");
    let settings = [("BOXWOOD_RECOVERY__GRACE_SEC", "8")];
    let mut daemon = Daemon::start_with(directory(), &settings);
    start_process(&daemon, "s", &token);
    let next_directory = daemon.kill();
    assert_eq!(pids(&token).len(), 1, "it waits at first");
    wait_until("its process to end", || pids(&token).is_empty());
    let next = Daemon::start_in(next_directory);
    assert_eq!(
        next.next_line(),
        "boxwood: 0 sessions adopted, 1 session lost"
    );
}

/// The first signal waits for requests, the second one does not, and boxes are kept all the same.
#[test]
fn a_second_signal_cuts_requests_and_keeps_boxes() {
    let (token, busy) = (token("twice"), token("busy"));
    let settings = [(MODE, "keep"), ("BOXWOOD_HTTP__DRAIN_SEC", "60")];
    let mut daemon = Daemon::start_with(directory(), &settings);
    let before = start_process(&daemon, "s", &token);
    let mut request = daemon
        // A captured command. Streamed ones can be resumed, so the daemon does not wait for them.
        .command(&["exec", "s", "-o", "json", "--", "sh", "-c", &waiting(&busy)])
        .spawn()
        .expect("boxwood runs");
    wait_until("client and command to run", || pids(&busy).len() == 2);
    let (code, signals) = daemon.insist(Duration::from_secs(40));
    assert_eq!(code, Some(0));
    assert!(signals >= 2, "nothing was waited for");
    let _ = request.kill();
    request.wait().expect("ended");
    assert_eq!(pids(&token), before);
    let next = Daemon::start_in(daemon.leave_directory());
    assert_eq!(pids(&token), before);
    next.run(&["rm", "s"]).ok();
}

#[test]
fn an_unknown_shutdown_mode_is_a_usage_error() {
    let directory = directory();
    let output = serve_command(directory.path())
        .args(["--on-shutdown", "leave"])
        .output()
        .expect("boxwood runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for part in ["--on-shutdown leave", "stop_ephemeral"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    let both = run(&["serve", "--stdio", "--takeover"]);
    assert_eq!(both.code, Some(2), "{}", both.all());
}
