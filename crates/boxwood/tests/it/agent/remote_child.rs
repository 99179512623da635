//! Agents that start a daemon of their own: it comes back when it ends, and goes when they go.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use boxwood_agent::{
    AgentSettings, Availability, Boxes as _, ChildSettings, ConnectOptions, Connector,
};
use boxwood_api::{SessionId, SpecRequest};

use crate::agent::remote::Platform;
use crate::support::command::boxwood;
use crate::support::host::{pids, token, wait_until, waiting};

const PROGRAM: &str = env!("CARGO_BIN_EXE_boxwood");

fn with_child(state_dir: &Path) -> Platform {
    let options = ConnectOptions {
        program: PROGRAM.into(),
        state_dir: Some(state_dir.to_owned()),
        ..ConnectOptions::default()
    };
    Platform::start(&AgentSettings::default(), options)
}

/// The daemon writes it into its lock.
fn pid_of(state_dir: &Path) -> u32 {
    let lock = std::fs::read_to_string(state_dir.join("daemon.lock"));
    let lock = lock.expect("a daemon was here");
    lock.trim().parse().expect("a pid")
}

fn kill(pid: u32) {
    let sent = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_child_that_is_killed_is_started_again_and_its_boxes_go_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let state_dir = directory.path().join("s");
    let platform = with_child(&state_dir);
    assert!(
        platform.is_available(),
        "{:?}",
        platform.connector().availability()
    );
    assert!(platform.connector().shares_filesystem());
    platform.exec("echo kept > f").expect("works");
    let first = pid_of(&state_dir);
    let running = platform.begin("echo begun; sleep 6; echo over");
    running.said("begun");
    kill(first);
    wait_until("the loss", || !platform.is_available());
    let error = platform.exec("true").expect_err("no runtime");
    assert!(
        error.message.contains("Disconnected from Box runtime"),
        "{error}"
    );
    let answer = running.end(&platform);
    assert_eq!(answer.result["stdout"], "begun\nover\n", "{answer:?}");
    assert_eq!(answer.result["ok"], true);
    assert_eq!(platform.connector().generation(), 2);
    let second = pid_of(&state_dir);
    assert_ne!(first, second);
    assert_eq!(
        platform.exec("cat f").expect("works").result["stdout"],
        "kept\n"
    );
    platform.dispose();
    assert!(!is_alive(second));
}

#[test]
fn dispose_ends_the_child_with_its_boxes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let state_dir = directory.path().join("s");
    let platform = with_child(&state_dir);
    let token = token("disposed");
    let spec = SpecRequest {
        session_id: Some(SessionId::new("s").expect("legal")),
        cmd: format!("echo on; {}", waiting(&token)),
        timeout_sec: Some(60),
        ..SpecRequest::default()
    };
    let boxes = platform.connector().boxes();
    // Held, so that there is still a command when the time to drain is over.
    let _begun = platform.wait(boxes.exec(spec)).expect("begins");
    wait_until("it to run", || !pids(&token).is_empty());
    let pid = pid_of(&state_dir);
    assert!(is_alive(pid));
    platform.dispose();
    assert!(!is_alive(pid), "its own process is gone");
    assert!(pids(&token).is_empty(), "and so are its boxes");
    assert!(!state_dir.join("run/boxwood.sock").exists());
}

/// The state directories of the daemons that this process has started.
fn children() -> Vec<PathBuf> {
    let ours = format!("PPid:\t{}\n", std::process::id());
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let found = processes.filter_map(|process| {
        let status = std::fs::read_to_string(process.path().join("status")).ok()?;
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0);
        let mut words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        words.find(|word| word == "--state-dir")?;
        status
            .contains(&ours)
            .then(|| words.next().map(PathBuf::from))?
    });
    found.collect()
}

#[test]
fn a_private_directory_goes_with_its_child() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let connector = Connector::child(ChildSettings::new(PROGRAM));
        let available = connector.settled().await;
        assert!(
            matches!(available, Availability::Available(_)),
            "{available:?}"
        );
        let sessions = connector.boxes().sessions().await.expect("an answer");
        assert!(sessions.is_empty());
        let private = children();
        let private = private.iter().find(|dir| {
            let name = dir.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("boxwood-")
        });
        let private = private.expect("a directory of its own").clone();
        assert!(private.join("daemon.log").exists());
        connector.dispose().await;
        assert!(!private.exists());
        assert_eq!(connector.availability(), Availability::Disposed);
        let error = connector.boxes().status().await.expect_err("it is gone");
        assert!(!error.reached);
    });
}

#[test]
fn a_child_that_cannot_be_started_is_named_with_the_fix() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let connector = Connector::child(ChildSettings::new("/nonexistent/boxwood"));
        let Availability::Unavailable(outage) = connector.settled().await else {
            panic!("it was started");
        };
        assert!(
            outage.reason.contains("/nonexistent/boxwood"),
            "{}",
            outage.reason
        );
        assert!(
            outage.fix.contains("box.runtime.endpoint"),
            "{}",
            outage.fix
        );
        connector.dispose().await;

        let settings = ChildSettings {
            variables: vec![("BOXWOOD_SESSION__TTL_SEC".into(), "soon".into())],
            ..ChildSettings::new(PROGRAM)
        };
        let connector = Connector::child(settings);
        let Availability::Unavailable(outage) = connector.settled().await else {
            panic!("it was started");
        };
        assert!(
            outage.reason.contains("ended with exit code"),
            "{}",
            outage.reason
        );
        assert!(
            outage.reason.contains("BOXWOOD_SESSION__TTL_SEC"),
            "{}",
            outage.reason
        );
        connector.dispose().await;
    });
}

/// The lifeline itself, without an agent: what happens when a program that has a daemon is killed.
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
