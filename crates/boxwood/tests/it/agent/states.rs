//! Agents whose boxes are disabled, have ended, or are on another daemon that is killed.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::tools::{call, exec, person, refusal, tool};
use crate::support::daemon::Daemon;
use crate::support::host::wait_until;

fn state(daemon: &Daemon) -> Value {
    let output = daemon.run(&["tool", "ls", "-o", "json"]);
    let list: Value = serde_json::from_str(&output.stdout).expect("JSON");
    list["unavailable"]["state"].clone()
}

/// A call that goes on while the test does something else.
fn begin(daemon: &Daemon, command: &str, timeout_sec: u64) -> Child {
    let arguments = json!({"command": command, "timeout_sec": timeout_sec}).to_string();
    let query = person("a").to_string();
    let args = [
        "tool", "call", "exec", &arguments, "--query", &query, "-o", "json",
    ];
    daemon
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("boxwood runs")
}

#[test]
fn a_disabled_agent_says_so_and_starts_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start_with(directory, &[("BOX__ENABLED", "false")]);
    let error = refusal(
        tool(&daemon, "exec", &json!({"command": "true"})),
        "Box runtime is disabled in config (box.enabled = false)",
    );
    assert_eq!(error["code"], "backend_unavailable");
    assert_eq!(state(&daemon), "disabled");
    let output = daemon.run(&["tool", "ls"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.contains("hint:"), "{}", output.stderr);
    assert_eq!(daemon.run(&["ls", "-q"]).ok(), "", "no box was made");
    let output = daemon.run(&["exec", "s", "--", "echo", "on"]).ok();
    assert_eq!(output, "on\n", "everything else goes on");
}

#[test]
fn a_backend_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = [("BOX__BACKEND", "e2b")];
    let daemon = Daemon::start_with(directory, &settings);
    assert_eq!(state(&daemon), "backend_unusable");
    let result = tool(&daemon, "exec", &json!({"command": "true"}));
    let error = refusal(result, "e2b");
    assert_eq!(error["code"], "backend_unavailable");
    assert!(error["hint"].is_string(), "{error}");
    let output = daemon.run(&["exec", "s", "--", "echo", "on"]).ok();
    assert_eq!(output, "on\n", "the daemon's own backend works");
}

#[test]
fn a_call_to_a_killed_daemon_fails_and_its_box_stays() {
    let mut daemon = Daemon::start();
    assert_eq!(exec(&daemon, "echo kept > note")["ok"], true);
    let calling = begin(&daemon, "touch begun; sleep 12; echo done; exit 4", 100);
    wait_until("the command", || {
        exec(&daemon, "test -e begun && echo yes")["stdout"] == "yes\n"
    });
    let directory = daemon.kill();
    let began = Instant::now();
    let output = calling.wait_with_output().expect("it ends");
    assert!(began.elapsed() < Duration::from_secs(10), "no hang");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());

    let daemon = Daemon::start_in(directory);
    let result = exec(&daemon, "cat note");
    assert_eq!(result["stdout"], "kept\n", "{result}");
    // The result of the command can be fetched later.
    let execs = daemon
        .run(&["ps", "--execs", "person_a", "-o", "json"])
        .ok();
    let execs: Value = serde_json::from_str(&execs).expect("JSON");
    let all = execs.as_array().expect("a list").iter();
    let left = all.filter(|exec| {
        exec["command"]
            .as_str()
            .is_some_and(|it| it.contains("sleep 12"))
    });
    let number = left.map(|exec| exec["exec_id"].to_string()).next();
    let number = number.expect("it is known");
    let shown = || -> Value {
        let args = ["inspect", "--exec", &number, "person_a", "-o", "json"];
        serde_json::from_str(&daemon.run(&args).ok()).expect("JSON")
    };
    wait_until("its end", || shown()["state"] == "ended");
    let result = &shown()["result"];
    assert_eq!(result["stdout"], "done\n", "{result}");
    assert_eq!(result["exit_code"], 4, "{result}");
}

/// A daemon whose agent uses the boxes of `other`.
fn agent_of(other: &Daemon) -> Daemon {
    let socket = other.directory().join("state/run/boxwood.sock");
    let endpoint = format!("unix://{}", socket.display());
    let directory = tempfile::tempdir().expect("a directory");
    Daemon::start_with(directory, &[("BOX__RUNTIME__ENDPOINT", &endpoint)])
}

#[test]
fn boxes_of_another_daemon_are_used_and_nothing_is_lost_when_it_is_killed() {
    let mut other = Daemon::start();
    let agent = agent_of(&other);
    wait_until("the connection", || state(&agent).is_null());
    assert_eq!(
        exec(&agent, "echo there > note; cat note")["stdout"],
        "there\n"
    );
    assert_eq!(agent.run(&["ls", "-q"]).ok(), "", "no box is here");
    assert_eq!(other.run(&["ls", "-q"]).ok(), "person_a\n");

    let command = "for n in $(seq 1 60); do echo line $n; sleep 0.1; done; echo end >&2; exit 3";
    let calling = begin(&agent, command, 60);
    wait_until("the command", || {
        let running = other.run(&["ps", "--execs", "person_a", "-o", "json"]).ok();
        running.contains("seq 1 60")
    });
    other = Daemon::start_in(other.kill());
    let output = calling.wait_with_output().expect("it ends");
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let result = &answer["result"];
    let expected: Vec<String> = (1..=60).map(|n| format!("line {n}\n")).collect();
    let expected = expected.concat();
    assert_eq!(result["stdout"], expected.as_str(), "{result}");
    assert_eq!(result["stderr"], "end\n");
    assert_eq!(result["exit_code"], 3);
    assert_eq!(other.run(&["ls", "-q"]).ok(), "person_a\n", "the same box");
}

#[test]
fn the_loss_and_the_return_of_a_daemon_are_detected() {
    let mut other = Daemon::start();
    let agent = agent_of(&other);
    wait_until("the connection", || state(&agent).is_null());
    assert_eq!(exec(&agent, "echo one > note")["ok"], true);
    let directory = other.kill();
    let noticed = Instant::now();
    while state(&agent) != "unavailable" {
        assert!(noticed.elapsed() < Duration::from_secs(30), "not noticed");
    }
    let began = Instant::now();
    let result = call(
        &agent,
        "exec",
        &json!({"command": "cat note"}),
        &person("a"),
    );
    let error = refusal(result, "Box runtime is not available");
    assert_eq!(error["code"], "backend_unavailable");
    assert!(began.elapsed() < Duration::from_secs(10), "no hang");
    let listed = agent.run(&["tool", "ls"]);
    assert_eq!(listed.code, Some(1), "{}", listed.all());

    let _other = Daemon::start_in(directory);
    // The interval between connection attempts grows to one minute.
    let began = Instant::now();
    while !state(&agent).is_null() {
        assert!(began.elapsed() < Duration::from_secs(75), "not found again");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(exec(&agent, "cat note")["stdout"], "one\n");
}
