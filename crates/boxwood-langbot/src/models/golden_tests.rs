//! Compares results with those of LangBot's own models, recorded by `tests/golden/pydantic.py`.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::box_spec::ValidSpec;
use super::{action_context, admission_grant, admission_revocation, box_spec, process_spec};
use crate::WireFormat;

#[derive(Deserialize)]
struct Case {
    model: String,
    input: Value,
    dumped: Option<Value>,
    error: Option<String>,
}

/// Inputs that LangBot's models accept and Boxwood rejects: a part of the error text, and the reason.
const REJECTED: [(&str, &str); 15] = [
    (
        "_sec must be at most ",
        "later arithmetic must not overflow",
    ),
    ("_mb must be at most ", "no box has that much"),
    ("pids_limit must be at most ", "the kernel has no more"),
    ("cpus must be at most ", "no box has that much"),
    (
        "cpus must be a finite number",
        "no box has infinitely many processors",
    ),
    (
        "must not contain NUL bytes",
        "NUL ends strings in the kernel",
    ),
    (
        "must not contain control characters",
        "ids are printed on one line",
    ),
    (
        "must not contain an empty name",
        "no process can have such a variable",
    ),
    (
        "must not contain `=` or NUL bytes",
        "no process can have such a variable",
    ),
    ("not a Windows path", "no Linux host can open it"),
    (
        "extra_mounts must have at most 64 entries, not 65",
        "the number of mounts is limited",
    ),
    ("_id must be at most 256 bytes", "ids have a maximum length"),
    (
        "_id must not be empty",
        "a process without an id cannot be addressed",
    ),
    (
        "unable to parse string as an integer",
        "of the spellings in text only plain decimal digits are read",
    ),
    (
        "unable to parse string as a number",
        "underscores between digits are not read",
    ),
];

/// Numbers and times that Python can hold and Boxwood cannot.
const TOO_LARGE: [(&str, &str); 3] = [
    (
        "exceeded maximum size",
        "serde_json reads integers beyond 64 bits as floats",
    ),
    (
        "Value error, must be at most 9223372036854775807",
        "generations and revisions are at most 63 bits wide",
    ),
    (
        "expires_at is out of range",
        "jiff's range ends a day before the year 10000",
    ),
];

/// Compares every case, and returns which of the intended differences occurred.
fn check(text: &str, version: WireFormat) -> HashSet<&'static str> {
    let cases: Vec<Case> = serde_json::from_str(text).expect("the golden file is JSON");
    assert!(cases.len() > 1000, "only {} cases", cases.len());
    let mut seen_differences = HashSet::new();
    let mut wrong = Vec::new();
    for case in &cases {
        let ours = ours(case, version);
        let same = match (&ours, &case.dumped, &case.error) {
            (Ok(ours), Some(theirs), _) => ours == theirs || differs_in_spelling(ours, theirs),
            (Err(ours), None, Some(theirs)) if sorted(ours) == sorted(theirs) => true,
            (Err(ours), _, _) => {
                let intended = REJECTED
                    .iter()
                    .chain(&TOO_LARGE)
                    .filter(|(sentence, _)| ours.contains(sentence));
                let sentences: Vec<&str> = intended.map(|(sentence, _)| *sentence).collect();
                seen_differences.extend(&sentences);
                !sentences.is_empty()
            }
            _ => false,
        };
        if !same {
            wrong.push(format!(
                "{} {:?}\n  ours:   {ours:?}\n  theirs: {:?} {:?}",
                case.model, case.input, case.dumped, case.error
            ));
        }
    }
    let first: Vec<&str> = wrong.iter().take(20).map(String::as_str).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} cases differ:\n{}",
        wrong.len(),
        cases.len(),
        first.join("\n")
    );
    seen_differences
}

/// The lines in a fixed order: pydantic lists unknown fields as they were sent, Boxwood by name.
fn sorted(text: &str) -> Vec<&str> {
    let mut errors: Vec<&str> = text.split_inclusive("]\n").map(str::trim_end).collect();
    // The first error follows the headline.
    if let Some((headline, first)) = errors[0].split_once('\n') {
        errors.splice(0..1, [headline, first]);
    }
    errors.sort_unstable();
    errors
}

#[test]
fn no_value_of_an_environment_is_shown() {
    for spec in [
        json!({"session_id": "s", "env": {"A": "secret\0"}}),
        json!({"session_id": "s", "env": {"A": ["secret"]}}),
        json!({"session_id": "s", "env": "secret"}),
        json!({"env": {"A": "secret"}}),
        json!({"session_id": "s", "env": {"secret=": "x"}}),
    ] {
        for version in [WireFormat::V0_4, WireFormat::V0_7] {
            let data = spec.as_object().expect("an object");
            let spec_text = box_spec(data, version).expect_err("rejected");
            let process_text = process_spec(&spec, version).expect_err("rejected");
            for text in [spec_text, process_text] {
                let shown = text.replace("`secret=`", "").replace("\"secret=\"", "");
                assert!(!shown.contains("secret"), "{text}");
            }
        }
    }
}

/// Boxwood trims process ids: ids that differ only in white space would look alike in a log.
fn differs_in_spelling(ours: &Value, theirs: &Value) -> bool {
    let mut theirs = theirs.clone();
    if let Some(id) = theirs.get_mut("process_id") {
        *id = json!(id.as_str().unwrap_or_default().trim());
    }
    // A negative memory limit of a process means no limit, like 0.
    if let Some(bound) = theirs.get_mut("memory_mb")
        && bound.as_i64().is_some_and(|bound| bound < 0)
    {
        *bound = json!(0);
    }
    *ours == theirs
}

fn ours(case: &Case, version: WireFormat) -> Result<Value, String> {
    let data = || case.input.as_object().expect("an object");
    match case.model.as_str() {
        "BoxSpec" => box_spec(data(), version).map(|given| spec_dump(&given, version)),
        "BoxManagedProcessSpec" => {
            let given = process_spec(&case.input, version)?;
            let mut dump = serde_json::to_value(&given.spec).expect("a spec is JSON");
            if version == WireFormat::V0_7 {
                dump["memory_mb"] = json!(given.memory_mb);
            }
            Ok(dump)
        }
        "ActionContext" => action_context(&case.input).map(|given| {
            json!({
                "instance_uuid": given.instance_uuid,
                "workspace_uuid": given.workspace_uuid,
                "placement_generation": given.placement_generation,
                "installation_uuid": given.installation_uuid,
            })
        }),
        "SandboxAdmissionGrant" => admission_grant(data()).map(|given| {
            json!({
                "instance_uuid": given.instance_uuid,
                "workspace_uuid": given.workspace_uuid,
                "execution_generation": given.execution_generation,
                "entitlement_revision": given.entitlement_revision,
                "expires_at": pydantic_time(given.expires_at),
                "max_sessions": given.max_sessions,
                "max_managed_processes": given.max_managed_processes,
            })
        }),
        "SandboxAdmissionRevocation" => admission_revocation(data()).map(|given| {
            json!({
                "instance_uuid": given.instance_uuid,
                "workspace_uuid": given.workspace_uuid,
                "entitlement_revision": given.entitlement_revision,
            })
        }),
        other => panic!("no model {other}"),
    }
}

fn pydantic_time(at: jiff::Timestamp) -> String {
    let format = if at.subsec_nanosecond() == 0 {
        "%Y-%m-%dT%H:%M:%SZ"
    } else {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    };
    at.strftime(format).to_string()
}

/// Lists every field by hand, so that a forgotten default does not vanish from both sides.
fn spec_dump(given: &ValidSpec, version: WireFormat) -> Value {
    let request = &given.request;
    let mounts: Vec<Value> = request
        .extra_mounts
        .iter()
        .zip(&given.mount_proofs)
        .map(|(mount, proof)| {
            let mut dump = json!({
                "host_path": mount.host_path,
                "mount_path": mount.mount_path,
                "mode": mount.mode.as_str(),
            });
            if version == WireFormat::V0_7 {
                dump["content_digest"] = json!(proof.content_digest);
                dump["manifest_path"] = json!(proof.manifest_path);
            }
            dump
        })
        .collect();
    json!({
        "cmd": request.cmd,
        "workdir": request.workdir,
        "timeout_sec": request.timeout_sec,
        "network": request.network.map(boxwood_api::Network::as_str),
        "session_id": request.session_id.as_ref().map(boxwood_api::SessionId::as_str),
        "env": request.env,
        "image": request.image,
        "host_path": request.host_path,
        "host_path_mode": request.host_path_mode.map(boxwood_api::MountMode::as_str),
        "mount_path": request.mount_path,
        "extra_mounts": mounts,
        "persistent": request.persistent,
        "cpus": request.cpus,
        "memory_mb": request.memory_mb,
        "pids_limit": request.pids_limit,
        "read_only_rootfs": request.read_only_rootfs,
        "workspace_quota_mb": request.workspace_quota_mb,
    })
}

#[test]
fn validation_agrees_with_the_published_models() {
    let v0_4 = include_str!("../../tests/golden/pydantic-v0_4.json");
    let v0_7 = include_str!("../../tests/golden/pydantic-v0_7.json");
    let mut seen_differences = check(v0_4, WireFormat::V0_4);
    seen_differences.extend(check(v0_7, WireFormat::V0_7));
    for (sentence, _) in REJECTED.iter().chain(&TOO_LARGE) {
        assert!(
            seen_differences.contains(sentence),
            "no case differs by {sentence:?}"
        );
    }
}

fn refusal(data: &Value) -> String {
    let none = Map::new();
    let data = data.as_object().unwrap_or(&none);
    box_spec(data, WireFormat::V0_4).expect_err("must be refused")
}

#[test]
fn values_that_a_box_cannot_have_are_rejected_in_the_same_format() {
    let check = |data: Value, error: &str| {
        let expected = format!("1 validation error for BoxSpec\n{error} [type=value_error]");
        assert_eq!(refusal(&data), expected);
    };
    check(
        json!({"session_id": "x".repeat(257)}),
        "session_id\n  Value error, session_id must be at most 256 bytes, not 257",
    );
    check(
        json!({"session_id": "s", "cpus": "inf"}),
        "cpus\n  Value error, cpus must be a finite number",
    );
    check(
        json!({"session_id": "s", "host_path": "C:\\x"}),
        "host_path\n  Value error, host_path must be a path of this host, not a Windows path",
    );
    check(
        json!({"session_id": "s", "extra_mounts": [{"host_path": "/h", "mount_path": "/\0"}]}),
        "extra_mounts.0.mount_path\n  Value error, mount_path must not contain NUL bytes",
    );
    check(
        json!({"session_id": "s", "cmd": "x".repeat(1024 * 1024 + 1)}),
        "cmd\n  Value error, cmd must be at most 1048576 bytes, not 1048577",
    );
}

#[test]
fn at_most_a_hundred_errors_are_listed() {
    let env: Map<String, Value> = (0..5000).map(|i| (format!("K{i}"), json!(i))).collect();
    let text = refusal(&json!({"session_id": "s", "env": env}));
    assert!(text.starts_with("5000 validation errors for BoxSpec\nenv.K0\n"));
    assert_eq!(text.matches("[type=string_type]").count(), 100);
}
