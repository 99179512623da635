//! The rule of each field, with the words in which it is told.

use boxwood_api::{MAX_COMMAND_BYTES, ProcessSpec, SpecRequest, from_json};

fn refused(body: &str, message: &str) {
    let request: SpecRequest = from_json(body.as_bytes()).expect(body);
    let fault = request.validate().expect_err(body);
    assert_eq!(fault.to_string(), message, "{body}");
}

fn allowed(body: &str) {
    let request: SpecRequest = from_json(body.as_bytes()).expect(body);
    request.validate().expect(body);
}

#[test]
fn limits_have_ends() {
    refused(
        r#"{"timeout_sec": 0}"#,
        "timeout_sec must be greater than 0",
    );
    refused(
        r#"{"timeout_sec": 9007199254740992}"#,
        "timeout_sec must be at most 1000000000",
    );
    refused(r#"{"cpus": 0}"#, "cpus must be greater than 0");
    refused(r#"{"cpus": -0.5}"#, "cpus must be greater than 0");
    refused(r#"{"cpus": 1e9}"#, "cpus must be at most 4096");
    refused(r#"{"memory_mb": 16}"#, "memory_mb must be at least 32");
    refused(
        r#"{"memory_mb": 67108865}"#,
        "memory_mb must be at most 67108864",
    );
    refused(r#"{"pids_limit": 0}"#, "pids_limit must be at least 1");
    refused(
        r#"{"pids_limit": 4194305}"#,
        "pids_limit must be at most 4194304",
    );
    allowed(r#"{"timeout_sec": 1, "cpus": 0.01, "memory_mb": 32, "pids_limit": 1}"#);
    allowed(r#"{"workspace_quota_mb": 0}"#);
}

#[test]
fn paths_are_absolute() {
    let workdir = "workdir must be an absolute path inside the sandbox";
    refused(r#"{"workdir": "rel"}"#, workdir);
    refused(r#"{"workdir": ""}"#, workdir);
    allowed(r#"{"workdir": "", "mount_path": "/project"}"#);
    allowed(r#"{"workdir": " /tmp "}"#);
    refused(
        r#"{"mount_path": "rel"}"#,
        "mount_path must be an absolute path inside the sandbox",
    );
    let host = "host_path must be an absolute host path";
    refused(r#"{"host_path": "rel"}"#, host);
    refused(r#"{"host_path": ""}"#, host);
    refused(r#"{"host_path": "./x"}"#, host);
    allowed(r#"{"host_path": "C:\\x"}"#);
    allowed(r#"{"host_path": " /srv/x "}"#);
    refused(
        r#"{"extra_mounts": [{"host_path": "/a", "mount_path": "/b"}, {"host_path": "x", "mount_path": "/b"}]}"#,
        "extra_mounts[1]: host_path must be an absolute host path",
    );
    refused(
        r#"{"extra_mounts": [{"host_path": "/a", "mount_path": "b"}]}"#,
        "extra_mounts[0]: mount_path must be an absolute path inside the sandbox",
    );
    let long = format!(r#"{{"workdir": "/{}"}}"#, "x".repeat(4095));
    refused(&long, "workdir must be at most 4095 bytes");
}

#[test]
fn mounts_are_counted() {
    let one = r#"{"host_path": "/a", "mount_path": "/b"}"#;
    let many = vec![one; 65].join(",");
    refused(
        &format!(r#"{{"extra_mounts": [{many}]}}"#),
        "extra_mounts must have at most 64 entries, not 65",
    );
}

#[test]
fn skills_are_named_and_counted() {
    allowed(r#"{"skills": ["pdf", "web-search", "数据"]}"#);
    let many = vec![r#""a""#; 65].join(",");
    refused(
        &format!(r#"{{"skills": [{many}]}}"#),
        "skills must have at most 64 entries, not 65",
    );
    refused(r#"{"skills": ["a", ""]}"#, "skills[1] must not be empty");
    let long = "x".repeat(65);
    refused(
        &format!(r#"{{"skills": ["{long}"]}}"#),
        "skills[0] must be at most 64 characters",
    );
    for path in ["a/b", "/", ".", "..", "../a"] {
        refused(
            &format!(r#"{{"skills": ["{path}"]}}"#),
            "skills[0] must be the name of a skill, not a path",
        );
    }
    for control in [r"a\nb", r"a\u0000", r"\u007f"] {
        refused(
            &format!(r#"{{"skills": ["{control}"]}}"#),
            "skills[0] must not contain control characters",
        );
    }
    refused(
        r#"{"skills": [" a"]}"#,
        "skills[0] must not begin or end with white space",
    );
}

#[test]
fn values_that_the_kernel_would_truncate_are_refused() {
    refused(r#"{"cmd": "a\u0000b"}"#, "cmd must not contain NUL bytes");
    refused(
        r#"{"workdir": "/a\u0000b"}"#,
        "workdir must not contain NUL bytes",
    );
    refused(
        r#"{"host_path": "/a\u0000b"}"#,
        "host_path must not contain NUL bytes",
    );
    refused(
        r#"{"env": {"A": "x\u0000y"}}"#,
        "env value of \"A\" must not contain NUL bytes",
    );
    refused(
        r#"{"env": {"A\u0000": "x"}}"#,
        "env name \"A\\0\" must not contain `=` or NUL bytes",
    );
    refused(
        r#"{"env": {"A=B": "x"}}"#,
        "env name \"A=B\" must not contain `=` or NUL bytes",
    );
    refused(
        r#"{"env": {"": "x"}}"#,
        "env must not contain an empty name",
    );
    refused(
        r#"{"image": "a\u0000"}"#,
        "image must not contain NUL bytes",
    );
    let big = format!(r#"{{"env": {{"A": "{}"}}}}"#, "x".repeat(131_072));
    refused(
        &big,
        "env entry \"A\" must be at most 131071 bytes with its name",
    );
}

#[test]
fn commands_end_at_one_mebibyte() {
    let mut request = SpecRequest {
        cmd: "x".repeat(MAX_COMMAND_BYTES),
        ..SpecRequest::default()
    };
    request.validate().expect("exactly one mebibyte");
    request.cmd.push('x');
    let fault = request.validate().expect_err("one byte more");
    assert_eq!(
        fault.to_string(),
        "cmd must be at most 1048576 bytes, not 1048577"
    );
}

#[test]
fn processes_have_rules_too() {
    let check = |body: &str, message: &str| {
        let fault = from_json::<ProcessSpec>(body.as_bytes()).expect_err(body);
        assert_eq!(fault.to_string(), message, "{body}");
    };
    check("{}", "command is required");
    check(r#"{"command": "  "}"#, "command must not be empty");
    check(
        r#"{"command": "x", "cwd": "rel"}"#,
        "cwd must be an absolute path inside the sandbox",
    );
    check(
        r#"{"command": "x", "args": ["a\u0000"]}"#,
        "args[0] must not contain NUL bytes",
    );
    check(
        r#"{"command": "x\u0000"}"#,
        "command must not contain NUL bytes",
    );
    check(
        r#"{"command": "x", "process_id": ""}"#,
        "process_id must not be empty",
    );
    check(
        r#"{"command": "x", "env": {"": "1"}}"#,
        "env must not contain an empty name",
    );
    check(
        r#"{"command": "x", "shell": true}"#,
        "unknown field `shell`, expected one of process_id, command, args, env, cwd",
    );
}

proptest::proptest! {
    #[test]
    fn reading_and_validating_never_panics(body in ".{0,200}", key in "[a-z_]{1,18}") {
        let _ = from_json::<SpecRequest>(body.as_bytes());
        let keyed = format!("{{{key:?}: {body}}}");
        if let Ok(request) = from_json::<SpecRequest>(keyed.as_bytes()) {
            let _ = request.validate();
        }
        let _ = from_json::<ProcessSpec>(keyed.as_bytes());
    }

    #[test]
    fn what_was_read_can_be_sent_again(cmd in ".{0,40}", timeout in 1..1000u64, cpus in 0.1..8.0f64) {
        let request = SpecRequest { cmd, timeout_sec: Some(timeout), cpus: Some(cpus), ..SpecRequest::default() };
        let sent = serde_json::to_vec(&request).expect("JSON");
        proptest::prop_assert_eq!(from_json::<SpecRequest>(&sent), Ok(request));
    }
}
