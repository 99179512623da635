use std::collections::BTreeMap;

use boxwood_agent::{Args, EditArgs, ExecArgs, GlobArgs, GrepArgs, ReadArgs, check};
use serde_json::{Map, Value, json};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

fn accepted(tool: &str, arguments: Value) -> Args {
    check(tool, &object(arguments)).unwrap()
}

fn refused(tool: &str, arguments: Value) -> String {
    check(tool, &object(arguments)).unwrap_err().to_string()
}

#[test]
fn omitted_arguments_have_defaults() {
    assert_eq!(
        accepted("exec", json!({"command": "ls"})),
        Args::Exec(ExecArgs {
            command: "ls".to_owned(),
            workdir: "/workspace".to_owned(),
            timeout_sec: None,
            env: BTreeMap::new(),
            description: None,
        })
    );
    assert_eq!(
        accepted("glob", json!({"pattern": "*.py"})),
        Args::Glob(GlobArgs {
            pattern: "*.py".to_owned(),
            path: "/workspace".to_owned(),
        })
    );
    assert_eq!(
        accepted("grep", json!({"pattern": "x", "file_type": "py"})),
        Args::Grep(GrepArgs {
            pattern: "x".to_owned(),
            path: "/workspace".to_owned(),
            include: None,
            file_type: Some("py".to_owned()),
            ignore_case: false,
        })
    );
    assert_eq!(
        accepted(
            "edit",
            json!({"path": "/workspace/a", "old_string": "a", "new_string": ""})
        ),
        Args::Edit(EditArgs {
            path: "/workspace/a".to_owned(),
            old_string: "a".to_owned(),
            new_string: String::new(),
            replace_all: false,
        })
    );
}

#[test]
fn given_arguments_are_used() {
    assert_eq!(
        accepted(
            "exec",
            json!({"command": " ls ", "workdir": "/tmp", "timeout_sec": 5, "env": {"A": "1"}, "description": "look"})
        ),
        Args::Exec(ExecArgs {
            command: " ls ".to_owned(),
            workdir: "/tmp".to_owned(),
            timeout_sec: Some(5),
            env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            description: Some("look".to_owned()),
        })
    );
    // A JSON number without a fraction is an integer.
    assert_eq!(
        accepted(
            "read",
            json!({"path": "/workspace/a", "offset": 10.0, "limit": 1})
        ),
        Args::Read(ReadArgs {
            path: "/workspace/a".to_owned(),
            offset: Some(10),
            limit: Some(1),
        })
    );
}

#[test]
fn the_field_that_is_wrong_is_named() {
    for (tool, arguments, expected) in [
        (
            "exec",
            json!({"command": "ls", "network": "on"}),
            "exec: unknown field `network`; it takes command, description, env, timeout_sec, workdir",
        ),
        ("exec", json!({}), "command is required"),
        ("activate", json!({}), "skill_name is required"),
        (
            "exec",
            json!({"command": 5}),
            "exec: `command` must be a string, not a number",
        ),
        (
            "exec",
            json!({"command": ""}),
            "exec: `command` must not be empty",
        ),
        (
            "exec",
            json!({"command": "ls", "timeout_sec": "30"}),
            "exec: `timeout_sec` must be a whole number, not a string",
        ),
        (
            "exec",
            json!({"command": "ls", "timeout_sec": 1.5}),
            "exec: `timeout_sec` must be a whole number, not a number with a fraction",
        ),
        (
            "exec",
            json!({"command": "ls", "timeout_sec": 0}),
            "exec: `timeout_sec` must be between 1 and 9007199254740991",
        ),
        (
            "exec",
            json!({"command": "ls", "timeout_sec": -1}),
            "exec: `timeout_sec` must be between 1 and 9007199254740991",
        ),
        (
            "exec",
            json!({"command": "ls", "workdir": null}),
            "exec: `workdir` must be a string, not null (leave the field out instead)",
        ),
        (
            "exec",
            json!({"command": "ls", "env": ["A=1"]}),
            "exec: `env` must be an object of strings, not a list",
        ),
        (
            "exec",
            json!({"command": "ls", "env": {"A": 1}}),
            "exec: `env.A` must be a string, not a number",
        ),
        (
            "exec",
            json!({"command": "ls", "env": {"A=B": "1"}}),
            "exec: `env.A=B` must have a name without `=` and NUL",
        ),
        (
            "exec",
            json!({"command": "ls", "env": {"A": "\u{0}"}}),
            "exec: `env.A` must not contain NUL",
        ),
        (
            "edit",
            json!({"path": "a", "old_string": "b", "new_string": "c", "replace_all": "yes"}),
            "edit: `replace_all` must be true or false, not a string",
        ),
        (
            "rm",
            json!({}),
            "unknown tool `rm`; the tools are exec, read, write, edit, glob, grep, activate, register_skill",
        ),
    ] {
        assert_eq!(refused(tool, arguments), expected);
    }
}

#[test]
fn sizes_are_bounded() {
    let mib = 1024 * 1024;
    accepted("exec", json!({"command": "x".repeat(mib)}));
    assert_eq!(
        refused("exec", json!({"command": "x".repeat(mib + 1)})),
        "exec: `command` must be at most 1048576 bytes, not 1048577"
    );
    accepted(
        "write",
        json!({"path": "/workspace/a", "content": "x".repeat(16 * mib)}),
    );
    assert_eq!(
        refused(
            "write",
            json!({"path": "/workspace/a", "content": "é".repeat(8 * mib + 1)})
        ),
        "write: `content` must be at most 16777216 bytes, not 16777218"
    );
    let many: Map<String, Value> = (0..1_025).map(|n| (format!("A{n}"), json!(""))).collect();
    assert_eq!(
        refused("exec", json!({"command": "ls", "env": many})),
        "exec: `env` must have at most 1024 variables"
    );
    assert_eq!(
        refused(
            "exec",
            json!({"command": "ls", "env": {"A": "x".repeat(131_071)}})
        ),
        "exec: `env.A` must be at most 131071 bytes with its name"
    );
    let large: Map<String, Value> = (0..9)
        .map(|n| (format!("A{n}"), json!("x".repeat(130_000))))
        .collect();
    assert_eq!(
        refused("exec", json!({"command": "ls", "env": large})),
        "exec: `env` must be at most 1048576 bytes in all"
    );
}

#[test]
fn names_that_a_model_made_up_are_cut_in_messages() {
    let long = "x".repeat(100_000);
    assert!(refused(&long, json!({})).len() < 300);
    assert!(refused("exec", json!({"command": "ls", long: 1})).len() < 300);
}
