//! Prewarmed boxes and frozen sessions, with a real daemon and real boxes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::daemon::Daemon;
use crate::support::host::{pids, token, wait_until, waiting};

const WARM: &str = "[profiles.ready]\nwarm = 2\n[profiles.other]\nmemory_mb = 100\n";

/// A daemon with a file of the test's own.
fn daemon_with(config: &str) -> Daemon {
    let directory = tempfile::tempdir().expect("a temporary directory");
    daemon_in(directory, config)
}

fn daemon_in(directory: TempDir, config: &str) -> Daemon {
    let file = directory.path().join("config.toml");
    fs::write(&file, config).expect("the configuration is written");
    let file = file.display().to_string();
    Daemon::start_with(directory, &[("BOXWOOD_CONFIG", &file)])
}

fn json(daemon: &Daemon, args: &[&str]) -> Value {
    let mut all = args.to_vec();
    all.extend(["-o", "json"]);
    serde_json::from_str(&daemon.run(&all).ok()).expect("JSON")
}

/// The body of a plain `GET`.
fn get(daemon: &Daemon, path: &str) -> String {
    let host = daemon
        .url()
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let mut stream = TcpStream::connect(host).expect("the daemon listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(" 200 "), "{head}");
    body.to_owned()
}

fn warm_boxes(daemon: &Daemon) -> u64 {
    let status: Value = serde_json::from_str(&get(daemon, "/v1/status")).expect("JSON");
    status["warm_boxes"].as_u64().expect("a number")
}

fn is_frozen(daemon: &Daemon, session: &str) -> bool {
    let listed = json(daemon, &["ls"]);
    let listed = listed.as_array().expect("a list").iter();
    let mut found = listed.filter(|info| info["session_id"] == session);
    found.next().expect("the session")["frozen"] == true
}

/// Returns true if the cgroup of the process is frozen.
fn frozen_in_the_kernel(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its groups");
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.expect("a v2 group").trim_start_matches('/');
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let mut groups = mounts.into_iter().map(|mount| Path::new(mount).join(path));
    let events = groups.find_map(|group| fs::read_to_string(group.join("cgroup.events")).ok());
    events.expect("its events").contains("frozen 1")
}

#[test]
fn a_session_gets_a_box_that_was_ready() {
    let daemon = daemon_with(WARM);
    wait_until("a box to wait", || warm_boxes(&daemon) == 1);
    assert_eq!(
        json(&daemon, &["ls"]),
        Value::Array(Vec::new()),
        "it is no session"
    );
    daemon.run(&["create", "s", "--profile", "ready"]).ok();
    let output = daemon
        .run(&["exec", "s", "--", "sh", "-c", "id -un; pwd"])
        .ok();
    assert_eq!(output, "box\n/workspace\n");
    // As complete as any other box of the profile.
    let label = |session: &str| json(&daemon, &["inspect", session])["isolation"].clone();
    daemon.run(&["create", "fresh", "--profile", "other"]).ok();
    assert_eq!(label("s"), label("fresh"));
    wait_until("the next ones to wait", || warm_boxes(&daemon) == 2);
    let metrics = get(&daemon, "/metrics");
    assert!(metrics.contains("\nboxwood_warm_boxes 2\n"), "{metrics}");
}

#[test]
fn a_killed_daemons_warm_boxes_are_removed_by_the_next() {
    let mut daemon = daemon_with(WARM);
    wait_until("a box to wait", || warm_boxes(&daemon) == 1);
    let instance = fs::read_to_string(daemon.directory().join("state/instance"));
    let instance = instance.expect("a daemon has a name").trim().to_owned();
    let before = groups(&instance);
    assert!(!before.is_empty(), "a box has groups");
    let directory = daemon.kill();
    let next = daemon_in(directory, "");
    assert_eq!(warm_boxes(&next), 0);
    wait_until("its groups to go", || {
        let now = groups(&instance);
        before.iter().all(|group| !now.contains(group))
    });
}

/// Every box of a daemon in the hierarchy that counts processes.
fn groups(instance: &str) -> Vec<String> {
    ["/sys/fs/cgroup/pids/boxwood", "/sys/fs/cgroup/boxwood"]
        .iter()
        .flat_map(|parent| fs::read_dir(format!("{parent}/{instance}")))
        .flat_map(Iterator::flatten)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.path().display().to_string())
        .collect()
}

#[test]
fn an_idle_session_is_frozen_until_it_is_used() {
    let daemon = daemon_with("[session]\nfreeze_after_sec = 1\n");
    let token = token("frozen");
    let program = waiting(&token);
    daemon
        .run(&["start", "s", "--id", "p", "--", "sh", "-c", &program])
        .ok();
    wait_until("the process to run", || pids(&token).len() == 1);
    let pid = pids(&token)[0];
    wait_until("the session to be frozen", || is_frozen(&daemon, "s"));
    assert!(frozen_in_the_kernel(pid));
    let began = Instant::now();
    assert_eq!(
        daemon.run(&["exec", "s", "--", "echo", "awake"]).ok(),
        "awake\n"
    );
    assert!(began.elapsed() < Duration::from_secs(5));
    // A session with a running command is not frozen.
    let mut running = daemon
        .command(&["exec", "-i", "s", "--", "sh", "-c", "echo awake; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("boxwood runs");
    let mut line = String::new();
    let stdout = running.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("output");
    assert_eq!(line, "awake\n");
    assert!(!frozen_in_the_kernel(pid), "the process goes on as well");
    drop(running.stdin.take());
    running.wait().expect("it ends");
    assert_eq!(pids(&token), [pid]);
    wait_until("the session to be frozen again", || is_frozen(&daemon, "s"));
    // A frozen session is deleted like any other, with all its processes.
    daemon.run(&["rm", "s"]).ok();
    assert!(pids(&token).is_empty());
}

#[test]
fn a_frozen_session_outlives_a_killed_daemon() {
    let config = "[session]\nfreeze_after_sec = 1\n";
    let mut daemon = daemon_with(config);
    let token = token("frozen-and-killed");
    let program = waiting(&token);
    daemon
        .run(&["start", "s", "--id", "p", "--", "sh", "-c", &program])
        .ok();
    wait_until("the process to run", || pids(&token).len() == 1);
    let pid = pids(&token)[0];
    wait_until("the session to be frozen", || is_frozen(&daemon, "s"));
    let directory = daemon.kill();
    assert_eq!(pids(&token), [pid]);
    // Freezing is off in the next daemon, which thaws adopted sessions.
    let next = daemon_in(directory, "");
    wait_until("the process to be awake", || !frozen_in_the_kernel(pid));
    assert!(!is_frozen(&next, "s"));
    assert_eq!(
        next.run(&["exec", "s", "--", "echo", "awake"]).ok(),
        "awake\n"
    );
    assert_eq!(pids(&token), [pid]);
    next.run(&["rm", "s"]).ok();
    assert!(pids(&token).is_empty());
}
