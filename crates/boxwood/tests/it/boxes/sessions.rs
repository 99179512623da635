//! Sessions of a real daemon, by the client verbs.

use serde_json::Value;

use crate::support::command::{boxwood, hide, run_with_input};
use crate::support::daemon::Daemon;

#[test]
fn the_daemon_says_one_line_when_it_is_ready_and_drains_when_told() {
    let mut daemon = Daemon::start();
    let expected = format!("boxwood: listening on {} (native backend)", daemon.url());
    assert_eq!(daemon.ready_line(), expected);
    daemon.run(&["exec", "s", "--", "true"]).ok();
    assert_eq!(daemon.terminate(), Some(0));
    let output = daemon.run(&["ls"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_with_a_hint() {
    let daemon = Daemon::start();
    let state = daemon.directory().join("state");
    let output = boxwood()
        .args(["serve", "--listen", "127.0.0.1:0", "--state-dir"])
        .arg(state)
        .output()
        .expect("boxwood runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("another daemon"), "{stderr}");
    assert!(stderr.contains("hint: "), "{stderr}");
}

#[test]
fn exec_creates_the_session_and_files_stay_in_it() {
    let daemon = Daemon::start();
    let output = daemon.run(&[
        "exec",
        "s",
        "--",
        "sh",
        "-c",
        "echo kept > f; echo e >&2; exit 5",
    ]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(5), "e\n"),
        "{}",
        output.all()
    );
    assert_eq!(daemon.run(&["exec", "s", "--", "cat", "f"]).ok(), "kept\n");
    let other = daemon.run(&["exec", "other", "--", "cat", "f"]);
    assert_ne!(other.code, Some(0), "{}", other.all());
    let output = run_with_input(daemon.command(&["exec", "-i", "s", "--", "cat"]), b"in\n");
    assert_eq!(output.ok(), "in\n");
}

#[test]
fn a_timeout_leaves_the_session_alive() {
    let daemon = Daemon::start();
    daemon.run(&["exec", "s", "--", "touch", "f"]).ok();
    let output = daemon.run(&["exec", "s", "--timeout", "1s", "--", "sleep", "60"]);
    assert_eq!(output.code, Some(124), "{}", output.all());
    daemon.run(&["exec", "s", "--", "test", "-e", "f"]).ok();
}

#[test]
fn sessions_come_and_go_by_name() {
    let daemon = Daemon::start();
    let created = daemon.run(&["create", "one", "--memory", "256m", "--pids", "64"]);
    assert_eq!(created.ok(), "one\n");
    daemon.run(&["create", "../x"]).ok();
    assert_eq!(daemon.run(&["ls", "-q"]).ok(), "one\n../x\n");
    let table = daemon.run(&["ls"]).ok();
    assert!(table.starts_with("SESSION"), "{table}");
    assert!(table.contains("256M"), "{table}");
    assert_eq!(daemon.run(&["rm", "../x"]).ok(), "../x\n");
    insta::assert_snapshot!(daemon.run(&["rm", "../x"]).all(), @r"
    exit 1
    --- stdout
    --- stderr
    error: session ../x not found
    hint: `boxwood ls` shows the sessions
    ");
    daemon.run(&["rm", "-f", "../x"]).ok();
    assert_eq!(daemon.run(&["rm", "--all"]).ok(), "one\n");
    assert_eq!(daemon.run(&["ls", "-o", "json"]).ok(), "[]\n");
}

#[test]
fn a_session_is_json_for_programs() {
    let daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let list: Value = serde_json::from_str(&daemon.run(&["ls", "-o", "json"]).ok()).expect("JSON");
    let list = hide(
        list,
        &[
            "/0/backend_session_id",
            "/0/created_at",
            "/0/last_used_at",
            "/0/isolation",
            "/0/incarnation",
        ],
    );
    insta::assert_json_snapshot!(list, @r#"
    [
      {
        "backend_name": "native",
        "backend_session_id": "[hidden]",
        "cpus": 1.0,
        "created_at": "[hidden]",
        "extra_mounts": [],
        "frozen": false,
        "host_path": null,
        "host_path_mode": "rw",
        "image": "host",
        "incarnation": "[hidden]",
        "isolation": "[hidden]",
        "last_used_at": "[hidden]",
        "memory_mb": 512,
        "mount_path": "/workspace",
        "network": "off",
        "persistent": false,
        "pids_limit": 128,
        "profile": "default",
        "read_only_rootfs": true,
        "session_id": "s",
        "workspace_quota_mb": 0
      }
    ]
    "#);
    let detail: Value =
        serde_json::from_str(&daemon.run(&["inspect", "s", "-o", "json"]).ok()).expect("JSON");
    let in_force = detail["isolation"]["in_force"].as_array().expect("a list");
    assert!(
        in_force.iter().any(|word| word == "mount_namespace"),
        "{detail}"
    );
    let shown = daemon.run(&["inspect", "s"]).ok();
    assert!(shown.contains("in force"), "{shown}");
}

#[test]
fn profiles_are_listed_with_their_locks() {
    let daemon = Daemon::start();
    let table = daemon.run(&["profiles"]).ok();
    insta::assert_snapshot!(table, @r"
    PROFILE            NETWORK   CPUS   MEMORY   PIDS   ROOT        TIMEOUT             LOCKED                                      REQUIRES
    default            off       1      512M     128    read-only   30s, at most 120s   -                                           -
    network_basic      on        1      512M     128    read-only   30s, at most 120s   -                                           -
    network_extended   on        2      1024M    256    writable    30s, at most 300s   -                                           -
    offline_readonly   off       0.5    256M     64     read-only   30s, at most 60s    network, host_path_mode, read_only_rootfs   -
    ");
}

#[test]
fn changes_by_the_profile_are_reported() {
    let daemon = Daemon::start();
    let output = daemon.run(&["exec", "s", "--timeout", "1h", "--", "true"]);
    assert_eq!(output.code, Some(0), "{}", output.all());
    assert!(
        output.stderr.contains("shortened from 3600 to 120"),
        "{}",
        output.stderr
    );
}

#[test]
fn another_users_mounts_need_the_operators_consent() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("UTF-8");
    let output = daemon.run(&["exec", "s", "--workspace", path, "--", "true"]);
    assert_eq!(output.code, Some(125), "{}", output.all());
    assert!(output.stderr.contains("hint: "), "{}", output.stderr);
}

#[test]
fn the_socket_works_as_well_as_the_port() {
    let daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let socket = daemon.directory().join("state/run/boxwood.sock");
    let url = format!("unix://{}", socket.display());
    let output = boxwood()
        .args(["--url", &url, "ls", "-q"])
        .output()
        .expect("boxwood runs");
    assert_eq!(
        output.stdout,
        b"s\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
