//! Recorded payloads of clients of LangBot Box. They must always parse and validate.

use boxwood_api::{ProcessSpec, SpecRequest, from_json};

const JUNE_SPECS: &str = include_str!("../payloads/specs-june.jsonl");
const MARCH_SPECS: &str = include_str!("../payloads/specs-march.jsonl");
const JUNE_PROCESSES: &str = include_str!("../payloads/processes-june.jsonl");

#[test]
fn full_specs_of_langbot_clients_are_valid() {
    let lines: Vec<&str> = JUNE_SPECS.lines().chain(MARCH_SPECS.lines()).collect();
    assert!(lines.len() > 10, "the recording is there");
    for line in lines {
        let request: SpecRequest = from_json(line.as_bytes()).expect(line);
        request.validate().expect(line);
        assert!(request.session_id.is_some(), "{line}");
        // Nothing a client says is lost on the way through our types.
        let sent: serde_json::Value = serde_json::from_str(line).expect(line);
        let kept = serde_json::to_value(&request).expect("JSON");
        for (field, value) in sent.as_object().expect("an object") {
            let empty = value.is_null()
                || value == ""
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty);
            assert!(empty || kept[field] == *value, "{field} of {line}");
        }
    }
}

#[test]
fn process_specs_of_langbot_clients_are_valid() {
    let mut count = 0;
    for line in JUNE_PROCESSES.lines() {
        let spec: ProcessSpec = from_json(line.as_bytes()).expect(line);
        assert!(spec.cwd.starts_with('/') && !spec.command.is_empty());
        count += 1;
    }
    assert!(count > 0, "the recording is there");
}

#[test]
fn a_minimal_process_spec_gets_the_defaults_of_langbot_box() {
    let spec: ProcessSpec = from_json(br#"{"command": " cat "}"#).expect("valid");
    insta::assert_json_snapshot!(spec, @r#"
    {
      "process_id": "default",
      "command": "cat",
      "args": [],
      "env": {},
      "cwd": "/workspace"
    }
    "#);
}

#[test]
fn a_request_is_sent_without_what_it_does_not_say() {
    let request = SpecRequest {
        cmd: "true".to_owned(),
        ..SpecRequest::default()
    };
    assert_eq!(
        serde_json::to_string(&request).expect("JSON"),
        r#"{"cmd":"true"}"#
    );
}

#[test]
fn secrets_stay_out_of_debug_output() {
    let request: SpecRequest =
        from_json(br#"{"env": {"TOKEN": "hunter2"}, "stdin": "hunter2"}"#).expect("valid");
    let process: ProcessSpec =
        from_json(br#"{"command": "x", "env": {"TOKEN": "hunter2"}}"#).expect("valid");
    for shown in [format!("{request:?}"), format!("{process:?}")] {
        assert!(
            shown.contains("TOKEN") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}
