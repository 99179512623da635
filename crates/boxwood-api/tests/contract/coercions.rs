//! What counts as a number, a boolean, a word or nothing at all.

use boxwood_api::{MountMode, Network, SpecRequest, from_json};

fn read(body: &str) -> SpecRequest {
    from_json(body.as_bytes()).unwrap_or_else(|fault| panic!("{body}: {fault}"))
}

fn refused(body: &str, message: &str) {
    let fault = from_json::<SpecRequest>(body.as_bytes()).expect_err(body);
    assert_eq!(fault.to_string(), message, "{body}");
}

#[test]
fn numbers_come_in_several_spellings() {
    assert_eq!(read(r#"{"timeout_sec": "999"}"#).timeout_sec, Some(999));
    assert_eq!(read(r#"{"timeout_sec": 9.0}"#).timeout_sec, Some(9));
    assert_eq!(read(r#"{"timeout_sec": true}"#).timeout_sec, Some(1));
    assert_eq!(read(r#"{"memory_mb": "256"}"#).memory_mb, Some(256));
    assert_eq!(read(r#"{"pids_limit": " 64 "}"#).pids_limit, Some(64));
    assert_eq!(read(r#"{"cpus": "0.5"}"#).cpus, Some(0.5));
    assert_eq!(read(r#"{"cpus": 2}"#).cpus, Some(2.0));
    refused(
        r#"{"timeout_sec": 9.5}"#,
        "timeout_sec must be an integer, not 9.5",
    );
    refused(
        r#"{"timeout_sec": "soon"}"#,
        "timeout_sec must be an integer, not \"soon\"",
    );
    refused(r#"{"memory_mb": 1e30}"#, "memory_mb is out of range");
    refused(
        r#"{"pids_limit": 99999999999999999999999999}"#,
        "pids_limit is out of range",
    );
    refused(r#"{"cpus": "NaN"}"#, "cpus must be a finite number");
    refused(r#"{"cpus": "Infinity"}"#, "cpus must be a finite number");
    refused(r#"{"cpus": []}"#, "cpus must be a number, not an array");
}

#[test]
fn negative_numbers_break_the_fields_own_rule() {
    refused(
        r#"{"timeout_sec": -1}"#,
        "timeout_sec must be greater than 0",
    );
    refused(r#"{"memory_mb": -1}"#, "memory_mb must be at least 32");
    refused(r#"{"pids_limit": -1}"#, "pids_limit must be at least 1");
    refused(
        r#"{"workspace_quota_mb": -1}"#,
        "workspace_quota_mb must be greater than or equal to 0",
    );
}

#[test]
fn booleans_come_in_several_spellings() {
    for yes in [r#""yes""#, r#""on""#, r#""1""#, "1", "true", "1.0"] {
        let body = format!(r#"{{"read_only_rootfs": {yes}}}"#);
        assert_eq!(read(&body).read_only_rootfs, Some(true), "{body}");
    }
    for no in [r#""no""#, r#""off""#, r#""0""#, "0", "false"] {
        let body = format!(r#"{{"persistent": {no}}}"#);
        assert_eq!(read(&body).persistent, Some(false), "{body}");
    }
    refused(
        r#"{"persistent": "perhaps"}"#,
        "persistent must be true or false, not \"perhaps\"",
    );
}

#[test]
fn enum_values_are_accepted_only_as_written() {
    assert_eq!(read(r#"{"network": "on"}"#).network, Some(Network::On));
    assert_eq!(
        read(r#"{"host_path_mode": "ro"}"#).host_path_mode,
        Some(MountMode::Ro)
    );
    for wrong in ["true", r#""ON""#, r#""maybe""#, "null", "1"] {
        refused(
            &format!(r#"{{"network": {wrong}}}"#),
            "network must be one of `off`, `on`",
        );
    }
    refused(
        r#"{"host_path_mode": "rx"}"#,
        "host_path_mode must be one of `none`, `ro`, `rw`",
    );
}

#[test]
fn text_is_never_made_from_numbers() {
    refused(r#"{"cmd": 5}"#, "cmd must be a string, not a number");
    refused(
        r#"{"session_id": 5}"#,
        "session_id must be a string, not a number",
    );
    refused(
        r#"{"env": {"A": 1}}"#,
        "env value of \"A\" must be a string, not a number",
    );
    refused(r#"{"env": []}"#, "env must be an object, not an array");
    let fault = from_json::<boxwood_api::ProcessSpec>(br#"{"command": "x", "args": ["a", 1]}"#)
        .expect_err("a number in args");
    assert_eq!(fault.to_string(), "args[1] must be a string, not a number");
}

#[test]
fn null_counts_as_absent_only_for_some_fields() {
    assert_eq!(read(r#"{"host_path": null}"#).host_path, None);
    assert_eq!(read(r#"{"session_id": null}"#).session_id, None);
    let request = read(r#"{"workdir": null, "mount_path": "/project"}"#);
    assert_eq!(request.workdir, None);
    refused(r#"{"workdir": null}"#, "workdir must be a string, not null");
    refused(
        r#"{"timeout_sec": null}"#,
        "timeout_sec must be an integer, not null",
    );
    refused(r#"{"env": null}"#, "env must be an object, not null");
    refused(
        r#"{"extra_mounts": null}"#,
        "extra_mounts must be an array, not null",
    );
}

#[test]
fn unknown_fields_are_refused_by_name() {
    let fault = from_json::<SpecRequest>(br#"{"memory": 5}"#).expect_err("unknown");
    assert!(
        fault
            .to_string()
            .starts_with("unknown field `memory`, expected one of session_id, cmd, "),
        "{fault}"
    );
    refused(
        r#"{"extra_mounts": [{"host_path": "/a", "mount_path": "/b", "propagation": "shared"}]}"#,
        "extra_mounts[0]: unknown field `propagation`, expected one of host_path, mount_path, mode",
    );
    refused(
        r#"{"extra_mounts": [{"mount_path": "/b"}]}"#,
        "extra_mounts[0]: host_path is required",
    );
    refused(
        r#"{"extra_mounts": ["/a:/b"]}"#,
        "extra_mounts[0]: an object was expected, not a string",
    );
}

#[test]
fn ids_are_checked_where_they_enter() {
    refused(r#"{"session_id": "  "}"#, "session_id must not be empty");
    refused(
        r#"{"session_id": "a\u0000b"}"#,
        "session_id must not contain control characters",
    );
    let long = format!(r#"{{"session_id": "{}"}}"#, "x".repeat(257));
    refused(&long, "session_id must be at most 256 bytes, not 257");
    let odd = read(r#"{"session_id": " ../x 群 "}"#);
    assert_eq!(odd.session_id.expect("an id").as_str(), "../x 群");
}
