//! `boxwood run` and `boxwood doctor`: real boxes, no daemon.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::command::{boxwood, hide, run, run_with_input};

#[test]
fn output_and_exit_code_are_the_commands_own() {
    let output = run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(output.code, Some(3), "{}", output.all());
    assert_eq!(output.stdout, "out\n");
    assert_eq!(output.stderr, "err\n");
}

#[test]
fn words_reach_the_program_unchanged() {
    let output = run(&[
        "run", "--", "printf", "%s|", "a b", "$HOME", "", "*", "it's",
    ]);
    assert_eq!(output.ok(), "a b|$HOME||*|it's|");
}

#[test]
fn a_timeout_is_exit_code_124_with_the_reason() {
    let output = run(&["run", "--timeout", "1s", "--", "sleep", "60"]);
    insta::assert_snapshot!(output.all(), @r"
    exit 124
    --- stdout
    --- stderr
    boxwood: the command exceeded its timeout and was stopped with its child processes
    hint: increase the timeout with `--timeout 5m`, up to the limit of the profile
    ");
}

#[test]
fn a_signal_is_128_and_its_number() {
    let output = run(&["run", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.code, Some(137), "{}", output.all());
    assert!(output.stderr.contains("signal 9"), "{}", output.stderr);
}

#[test]
fn a_program_that_does_not_exist_is_127() {
    let output = run(&["run", "--", "no-such-program-anywhere"]);
    assert_eq!(output.code, Some(127), "{}", output.all());
    assert!(!output.stderr.is_empty());
}

#[test]
fn stdin_is_empty_unless_asked_for() {
    let mut command = boxwood();
    command.args(["run", "--", "cat"]);
    assert_eq!(run_with_input(command, b"unasked").ok(), "");
    let mut command = boxwood();
    command.args(["run", "-i", "--", "cat"]);
    assert_eq!(run_with_input(command, b"asked\n").ok(), "asked\n");
}

#[test]
fn much_input_and_output_pass_whole() {
    let input: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut command = boxwood();
    command.args(["run", "-i", "--", "sh", "-c", "cat | wc -c"]);
    assert_eq!(run_with_input(command, &input).ok().trim(), "12000000");
    let output = run(&[
        "run",
        "--",
        "sh",
        "-c",
        "head -c 5000000 /dev/zero | tr '\\0' x",
    ]);
    assert_eq!(output.ok().len(), 5_000_000);
}

#[test]
fn the_box_is_not_this_machine() {
    let secret = tempfile::NamedTempFile::new().expect("a file");
    let path = secret.path().to_str().expect("UTF-8");
    let output = run(&["run", "--", "cat", path]);
    assert_ne!(output.code, Some(0), "{}", output.all());
    let interfaces = run(&["run", "--", "cat", "/proc/net/dev"]).ok();
    let names: Vec<_> = interfaces
        .lines()
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.trim()))
        .collect();
    assert_eq!(names, ["lo"]);
}

#[test]
fn a_named_directory_is_the_workspace() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("in.txt"), "given").expect("written");
    let path = directory.path().to_str().expect("UTF-8");
    let script = "cat in.txt; echo made > out.txt";
    let output = run(&["run", "--workspace", path, "--", "sh", "-c", script]);
    assert_eq!(output.ok(), "given");
    let made = std::fs::read_to_string(directory.path().join("out.txt")).expect("made");
    assert_eq!(made, "made\n");
    let read_only = format!("{path}:ro");
    let output = run(&["run", "--workspace", &read_only, "--", "touch", "nope"]);
    assert_ne!(output.code, Some(0), "{}", output.all());
    assert!(!directory.path().join("nope").exists());
}

#[test]
fn the_blocked_list_holds_for_the_operator_too() {
    for mount in [
        "/etc:/mnt/etc",
        "/:/mnt/host:ro",
        "/proc:/mnt/p",
        "/root:/mnt/r",
    ] {
        let output = run(&["run", "-v", mount, "--", "true"]);
        assert_eq!(output.code, Some(125), "{mount}: {}", output.all());
        assert!(
            output.stderr.starts_with("error: "),
            "{mount}: {}",
            output.stderr
        );
    }
}

#[test]
fn variables_are_given_one_by_one() {
    let output = boxwood()
        .env("GIVEN_TEST_SECRET", "not for the box")
        .env("GIVEN_TEST_VALUE", "from here")
        .args(["run", "-e", "A=1", "-e", "GIVEN_TEST_VALUE", "--", "env"])
        .output()
        .expect("boxwood runs");
    let environment = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        environment.contains("\nA=1\n") || environment.starts_with("A=1\n"),
        "{environment}"
    );
    assert!(
        environment.contains("GIVEN_TEST_VALUE=from here"),
        "{environment}"
    );
    assert!(!environment.contains("GIVEN_TEST_SECRET"), "{environment}");
}

#[test]
fn the_result_is_json_for_programs() {
    let output = run(&["run", "-o", "json", "--", "sh", "-c", "echo hi; exit 4"]);
    assert_eq!(output.code, Some(4), "{}", output.all());
    let result: Value = serde_json::from_str(&output.stdout).expect("JSON");
    insta::assert_json_snapshot!(hide(result, &["/session_id", "/duration_ms"]), @r#"
    {
      "backend_name": "native",
      "duration_ms": "[hidden]",
      "exit_code": 4,
      "session_id": "[hidden]",
      "status": "completed",
      "stderr": "",
      "stderr_capture": {
        "dropped_bytes": 0,
        "total_bytes": 0
      },
      "stdout": "hi\n",
      "stdout_capture": {
        "dropped_bytes": 0,
        "total_bytes": 3
      }
    }
    "#);
}

#[test]
fn ctrl_c_reaches_the_command() {
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = boxwood()
        .args(["run", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("boxwood runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("output");
    assert_eq!(line, "ready\n");
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(sent.success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("output");
    assert_eq!(rest, "caught\n");
    assert_eq!(child.wait().expect("ends").code(), Some(9));
}

#[test]
fn a_reader_that_leaves_ends_the_command() {
    let binary = env!("CARGO_BIN_EXE_boxwood");
    let output = Command::new("timeout")
        .args([
            "60",
            "sh",
            "-c",
            &format!("'{binary}' run -- yes | head -1"),
        ])
        .output()
        .expect("sh runs");
    assert_eq!(output.status.code(), Some(0), "it did not end by itself");
    assert_eq!(output.stdout, b"y\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn doctor_says_what_is_in_force() {
    let output = run(&["doctor", "-o", "json"]);
    assert_eq!(
        output.code,
        Some(0),
        "no box can start on this host:\n{}",
        output.all()
    );
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["usable"], true);
    let findings = report["findings"].as_array().expect("a list");
    assert!(findings.len() > 5, "{findings:?}");
    for finding in findings {
        assert!(
            finding["matters"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{finding}"
        );
        if finding["state"] != "works" {
            assert!(
                finding["fix"].as_str().is_some_and(|text| !text.is_empty()),
                "{finding}"
            );
        }
    }
    let table = run(&["doctor"]).ok();
    assert!(table.starts_with("MECHANISM"), "{table}");
}
