//! Errors and hints of the command.

use crate::support::command::{boxwood, run};

/// Nothing listens there: port 1 needs root to bind, and no test does.
const NO_DAEMON: &str = "http://127.0.0.1:1";

#[test]
fn a_missing_daemon_is_reported_with_its_address_and_a_hint() {
    let output = run(&["--url", NO_DAEMON, "ls"]);
    insta::assert_snapshot!(output.all(), @r"
    exit 1
    --- stdout
    --- stderr
    error: no daemon answers at http://127.0.0.1:1
      caused by: Connection refused (os error 111)
    hint: start one with `boxwood serve`, or name another with `--url` or `BOXWOOD_URL`
    ");
}

#[test]
fn exec_without_a_daemon_is_boxwoods_failure_and_not_the_commands() {
    let output = run(&["--url", NO_DAEMON, "exec", "s", "--", "true"]);
    assert_eq!(output.code, Some(125), "{}", output.all());
    assert!(
        output.stderr.starts_with("error: no daemon answers"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_missing_socket_is_named_too() {
    let output = run(&["--url", "unix:///nonexistent/boxwood.sock", "ls"]);
    insta::assert_snapshot!(output.all(), @r"
    exit 1
    --- stdout
    --- stderr
    error: no daemon answers at unix:///nonexistent/boxwood.sock
      caused by: No such file or directory (os error 2)
    hint: start one with `boxwood serve`, or name another with `--url` or `BOXWOOD_URL`
    ");
}

#[test]
fn programs_get_errors_as_json() {
    let output = run(&["--url", NO_DAEMON, "-o", "json", "ls"]);
    assert_eq!(output.code, Some(1));
    let body: serde_json::Value = serde_json::from_str(&output.stderr).expect("JSON");
    insta::assert_json_snapshot!(body, @r#"
    {
      "error": {
        "code": "backend_unavailable",
        "hint": "start one with `boxwood serve`, or name another with `--url` or `BOXWOOD_URL`",
        "message": "no daemon answers at http://127.0.0.1:1: Connection refused (os error 111)"
      }
    }
    "#);
}

#[test]
fn an_address_that_cannot_work_is_a_usage_error() {
    let output = run(&["--url", "ftp://x", "ls"]);
    insta::assert_snapshot!(output.all(), @r"
    exit 2
    --- stdout
    --- stderr
    error: `ftp://x` is not an address of a daemon: the scheme must be `http`, `https` or `unix`
    hint: addresses look like `http://127.0.0.1:5410` or `unix:///run/boxwood/boxwood.sock`
    ");
}

#[test]
fn a_token_in_the_environment_is_never_shown() {
    let output = boxwood()
        .env("BOXWOOD_TOKEN", "bad\ntoken-secret")
        .args(["--url", NO_DAEMON, "ls"])
        .output()
        .expect("boxwood runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(!stderr.contains("secret"), "{stderr}");
}

#[test]
fn a_copy_needs_exactly_one_session() {
    let output = run(&["--url", NO_DAEMON, "cp", "a", "b"]);
    insta::assert_snapshot!(output.all(), @r"
    exit 2
    --- stdout
    --- stderr
    error: neither side is in a session
    hint: write one side as SESSION:/path
    ");
    let output = run(&["--url", NO_DAEMON, "cp", "a:/x", "b:/x"]);
    assert_eq!(output.code, Some(2), "{}", output.all());
}

#[test]
fn a_terminal_where_there_is_none_is_refused() {
    let output = run(&["--url", NO_DAEMON, "exec", "-t", "s", "--", "true"]);
    insta::assert_snapshot!(output.all(), @r"
    exit 2
    --- stdout
    --- stderr
    error: stdin is not a terminal
    hint: omit `-t`; `-i` alone passes stdin to the command
    ");
    // `sh` has no `-t`.
    let output = run(&["--url", NO_DAEMON, "sh", "s"]);
    insta::assert_snapshot!(output.all(), @r"
    exit 2
    --- stdout
    --- stderr
    error: stdin is not a terminal
    hint: `boxwood exec -i SESSION -- sh` passes stdin to a shell
    ");
}

#[test]
fn invalid_values_are_refused_with_an_example() {
    let check = |args: &[&str], expected: &str| {
        let output = run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.all());
        assert!(
            output.stderr.contains(expected),
            "{args:?}: {}",
            output.stderr
        );
    };
    check(
        &["exec", "s", "--timeout", "soon", "--", "true"],
        "`soon` is not a duration; write `30s`, `2m`, `1h30m`",
    );
    check(
        &["exec", "s", "--memory", "512", "--", "true"],
        "`512` is less than 1 MiB; write `512m` or `2g`",
    );
    check(
        &["exec", "s", "-v", "/data", "--", "true"],
        "`/data` is not a mount; write `HOST:/path` or `HOST:/path:ro`",
    );
    check(
        &["exec", "s", "-e", "BOXWOOD_TEST_SURELY_UNSET", "--", "true"],
        "`BOXWOOD_TEST_SURELY_UNSET` is not set in your environment",
    );
    check(
        &["exec", "s", "--require", "magic", "--", "true"],
        "unknown mechanism; use one of user_namespace",
    );
    check(&["exec", "", "--", "true"], "session_id must not be empty");
    check(&["kill", "-s", "NOPE", "s"], "there is no signal `NOPE`");
    check(&["exec", "s"], "required");
    check(&["frobnicate"], "unrecognized subcommand");
    check(&["ls", "-o", "yaml"], "possible values: table, json");
}

#[test]
fn no_arguments_show_the_help() {
    let output = run(&[]);
    assert_eq!(output.code, Some(2));
    assert!(
        output.stderr.contains("Usage: boxwood"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_configuration_that_does_not_parse_stops_the_start_with_its_key() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("config.toml");
    std::fs::write(&file, "[session]\nttl_sek = 1\n").expect("written");
    let output = run(&["serve", "--config", file.to_str().expect("UTF-8")]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stderr.starts_with("error: "), "{}", output.stderr);
    assert!(output.stderr.contains("config.toml"), "{}", output.stderr);
    assert!(output.stderr.contains("ttl_sek"), "{}", output.stderr);
    std::fs::write(&file, "listen =\n").expect("written");
    let output = run(&["serve", "--config", file.to_str().expect("UTF-8")]);
    assert!(
        output.stderr.contains("\n    1 | listen ="),
        "{}",
        output.stderr
    );
}

#[test]
fn an_impossible_listen_address_names_the_flag() {
    let output = run(&["serve", "--listen", "nowhere"]);
    assert_eq!(output.code, Some(2), "{}", output.all());
    assert!(
        output.stderr.contains("--listen nowhere"),
        "{}",
        output.stderr
    );
}
