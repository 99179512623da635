//! `boxwood mcp` with a scripted daemon.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::command::{CommandResult, boxwood, help, run, run_with_input};
use crate::support::scripted_daemon::{
    ReceivedRequest, Scripted, ScriptedResponse, json as answer, response,
};

fn runtime(status: &str) -> Value {
    let failed = status == "error";
    json!({
        "status": status, "retry_count": 0, "tool_count": 2,
        "error_message": failed.then_some("Dependency install failed (exit code 1): no such package"),
        "error_phase": failed.then_some("dep_install"),
        "hint": failed.then_some("look at the package's name"),
        "tools": [{"name": "now", "description": "Tells the time.\nMore.", "parameters": {
            "properties": {"zone": {"type": "string"}, "digits": {"type": "integer"}}, "required": ["zone"],
        }}],
    })
}

fn server(status: &str) -> Value {
    json!({
        "name": "time", "command": "uvx", "args": ["mcp-server-time"], "env_keys": ["TOKEN"],
        "enabled": true, "box": {}, "tools": {}, "path": "/mcp/time", "runtime": runtime(status),
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
    })
}

/// A daemon with one server, whose start has this result.
fn daemon(end: &'static str) -> Scripted {
    Scripted::start(move |request: &ReceivedRequest| -> ScriptedResponse {
        match request.line().as_str() {
            "POST /v1/mcp/servers" => {
                response(201, "application/json", server("connecting").to_string())
            }
            "GET /v1/mcp/servers/time/progress"
            | "POST /v1/mcp/test"
            | "POST /v1/mcp/servers/time/test" => response(
                200,
                "application/x-ndjson",
                [
                    json!({"type": "phase", "phase": "session_create"}),
                    json!({"type": "phase", "phase": "dep_install", "detail": "mcp-server-time"}),
                    json!({"type": "output", "line": "Resolving\u{1b}[2J"}),
                    json!({"type": "from-the-future"}),
                    json!({"type": "phase", "phase": "mcp_init"}),
                    json!({"type": "done", "runtime": runtime(end)}),
                ]
                .map(|line| format!("{line}\n"))
                .concat(),
            ),
            "POST /v1/mcp/import" => answer(&json!({
                "added": ["time"], "replaced": [], "notices": ["`time`: something to know"],
                "skipped": [{"name": "far", "why": "it is a remote server"}],
            })),
            "GET /v1/mcp/servers/time"
            | "POST /v1/mcp/servers/time/restart"
            | "POST /v1/mcp/servers/time/restart?reinstall=true" => answer(&server(end)),
            "POST /v1/mcp/servers/time/stop" => answer(&server("stopped")),
            "GET /v1/mcp/servers/time/logs" => answer(&json!({
                "stderr": "a\u{1b}[2J\nb\n", "install": "Resolving\n", "protocol": ["> initialize 1"],
            })),
            "GET /v1/mcp/servers" => answer(&json!({"servers": [server(end)]})),
            "GET /v1/mcp/servers/time/tools" => answer(&runtime(end)["tools"]),
            "POST /v1/mcp/servers/time/tools/now" => {
                let fails = request.json()["arguments"]["zone"] == "nowhere";
                answer(&json!({
                    "content": [{"type": "text", "text": "said"}], "isError": fails,
                    "echo": request.json()["arguments"],
                }))
            }
            "POST /v1/mcp/servers/time/tools/then" => response(
                400,
                "application/json",
                json!({"error": {
                    "code": "validation_error", "message": "the server refused the call",
                    "hint": "look at its tools", "phase": "tool_call",
                }})
                .to_string(),
            ),
            "DELETE /v1/mcp/servers/time" => answer(&json!({"removed": "time"})),
            _ => response(
                404,
                "application/json",
                json!({"error": {"code": "not_found", "message": "no MCP server is called so"}})
                    .to_string(),
            ),
        }
    })
}

fn ask(daemon: &Scripted, args: &[&str]) -> CommandResult {
    let url = ["--url", &daemon.url];
    run(&[&["mcp"], &url[..], args].concat())
}

#[test]
fn adding_shows_each_phase() {
    let daemon = daemon("connected");
    let args = [
        "add",
        "time",
        "-e",
        "TOKEN=hunter2",
        "--",
        "uvx",
        "mcp-server-time",
    ];
    let output = ask(&daemon, &args);
    assert_snapshot!(output.all(), @r"
    exit 0
    --- stdout
    time connected, 2 tools
    --- stderr
    time: session_create
    time: dep_install: mcp-server-time
    time: mcp_init
    ");
    let sent = daemon.requests()[0].json();
    assert_eq!(sent["env"], json!({"TOKEN": "hunter2"}));
    assert_eq!(sent["args"], json!(["mcp-server-time"]));
    let printed = ask(&daemon, &["-o", "json", "add", "time", "--", "uvx"]).ok();
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(printed["runtime"]["status"], "connected");
}

#[test]
fn a_server_that_fails_says_where_and_what_to_do() {
    let daemon = daemon("error");
    let output = ask(&daemon, &["test", "--", "uvx", "mcp-server-tme"]);
    assert_snapshot!(output.all(), @r"
    exit 1
    --- stdout
    test error
      now
    --- stderr
    test: session_create
    test: dep_install: mcp-server-time
    test: mcp_init
    test: failed in dep_install: Dependency install failed (exit code 1): no such package
    hint: look at the package's name
    ");
    // `status` succeeds also if the server has failed.
    assert_eq!(ask(&daemon, &["status", "time"]).code, Some(0));
    assert_eq!(
        ask(&daemon, &["status", "time", "-o", "json"]).code,
        Some(0)
    );
}

#[test]
fn a_call_that_is_refused_names_its_phase() {
    let daemon = daemon("connected");
    assert_snapshot!(ask(&daemon, &["call", "time", "then"]).all(), @r"
    exit 1
    --- stdout
    --- stderr
    error: the server refused the call
    phase: tool_call
    hint: look at its tools
    ");
    let output = ask(&daemon, &["-o", "json", "call", "time", "then"]);
    let error: Value = serde_json::from_str(&output.stderr).expect("JSON");
    assert_eq!(error["error"]["phase"], "tool_call", "{error}");
    assert_eq!(error["error"]["code"], "validation_error", "{error}");
}

#[test]
fn a_stored_server_is_tried_by_its_name() {
    let daemon = daemon("connected");
    assert_snapshot!(ask(&daemon, &["test", "time"]).all(), @r"
    exit 0
    --- stdout
    time connected, 2 tools
      now
    --- stderr
    time: session_create
    time: dep_install: mcp-server-time
    time: mcp_init
    ");
    // A stored server cannot be changed for a test.
    for args in [
        &["test", "time", "--no-network"][..],
        &["test", "time", "--", "uvx", "mcp-server-time"],
        &["test"],
        &["add", "time"],
    ] {
        let output = ask(&daemon, args);
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.all());
    }
    let output = ask(&daemon, &["test", "other"]);
    assert!(
        output.all().contains("no MCP server is called so"),
        "{}",
        output.all()
    );
}

#[test]
fn a_restart_installs_anew_when_told_to() {
    let daemon = daemon("connected");
    for (args, expected) in [
        (
            &["restart", "time", "--no-wait"][..],
            "POST /v1/mcp/servers/time/restart",
        ),
        (
            &["restart", "--reinstall", "time", "--no-wait"],
            "POST /v1/mcp/servers/time/restart?reinstall=true",
        ),
    ] {
        ask(&daemon, args).ok();
        assert_eq!(daemon.lines().last().map(String::as_str), Some(expected));
    }
}

#[test]
fn an_import_sends_what_the_document_mentions_and_nothing_else() {
    let daemon = daemon("connected");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join(".vscode").join("mcp.json");
    fs::create_dir(dir.path().join(".vscode")).expect("made");
    let text = r#"{
        // A comment.
        "inputs": [{"id": "key", "password": true}],
        "servers": {"time": {
            "command": "uvx", "args": ["${workspaceFolder}", "${env:MENTIONED}"],
            "env": {"K": "${input:key}", "L": "${ABSENT:-x}"},
        },},
    }"#;
    fs::write(&file, text).expect("written");
    let key = dir.path().join("key");
    fs::write(&key, "hunter2\n").expect("written");
    let output = boxwood()
        .args(["mcp", "--url", &daemon.url, "import"])
        .arg(&file)
        .args(["--input", &format!("key=@{}", key.display())])
        .env("MENTIONED", "yes")
        .env("NOT_MENTIONED", "no")
        .output()
        .expect("output");
    let output = CommandResult::from(output);
    assert_snapshot!(output.all(), @r"
    exit 0
    --- stdout
    1 added, 1 skipped
    time connected, 2 tools
    --- stderr
    boxwood: `time`: something to know
    boxwood: skipped `far`: it is a remote server
    time: session_create
    time: dep_install: mcp-server-time
    time: mcp_init
    ");
    let sent = daemon.requests()[0].clone();
    assert!(!sent.body.contains("NOT_MENTIONED"), "{}", sent.body);
    let inputs = &sent.json()["inputs"];
    assert_eq!(inputs["env:MENTIONED"], "yes");
    assert_eq!(inputs["key"], "hunter2");
    let folder = fs::canonicalize(dir.path()).expect("a path");
    assert_eq!(
        fs::canonicalize(inputs["workspaceFolder"].as_str().expect("text")).ok(),
        Some(folder)
    );
}

#[test]
fn a_variable_without_a_value_is_reported_by_name() {
    let daemon = daemon("connected");
    let document =
        r#"{"mcpServers": {"time": {"command": "x", "env": {"A": "${SURELY_UNSET_HERE}"}}}}"#;
    let mut command = boxwood();
    command.args(["mcp", "--url", &daemon.url, "import", "-"]);
    let output = run_with_input(command, document.as_bytes());
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output
            .stderr
            .contains("no value for the variable `SURELY_UNSET_HERE`"),
        "{output:?}"
    );
    let mut command = boxwood();
    command.args(["mcp", "--url", &daemon.url, "import", "-"]);
    let output = run_with_input(command, b"{\"mcpServers\": {\"a\": {}, \"a\": {}}}");
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.stderr.contains("the key `a` occurs twice"),
        "{output:?}"
    );
}

#[test]
fn a_call_ends_with_what_the_tool_says() {
    let daemon = daemon("connected");
    let output = ask(&daemon, &["call", "time", "now", "zone=UTC", "digits=3"]);
    assert_eq!(output.ok(), "said\n");
    let printed = ask(
        &daemon,
        &["call", "time", "now", "zone=1.10", "digits=3", "-o", "json"],
    )
    .ok();
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(printed["echo"], json!({"zone": "1.10", "digits": 3}));
    let output = ask(&daemon, &["call", "time", "now", "{\"zone\": \"nowhere\"}"]);
    assert_eq!(
        (output.code, output.stdout.as_str(), output.stderr.as_str()),
        (Some(1), "", "said\n")
    );
    let output = ask(&daemon, &["call", "time", "later"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stderr.contains("hint: `boxwood mcp ls`"),
        "{output:?}"
    );
}

#[test]
fn lists_are_for_people_and_for_programs() {
    let daemon = daemon("connected");
    assert_snapshot!(ask(&daemon, &["tools", "time"]).ok(), @r"
    NAME   ARGUMENTS       DESCRIPTION
    now    zone [digits]   Tells the time.
    ");
    assert_eq!(ask(&daemon, &["tools", "time", "-q"]).ok(), "now\n");
    assert_eq!(ask(&daemon, &["ls", "-q"]).ok(), "time\n");
    let listed = ask(&daemon, &["ls"]).ok();
    assert!(listed.contains("time   connected   2"), "{listed}");
    let printed: Value =
        serde_json::from_str(&ask(&daemon, &["ls", "-o", "json"]).ok()).expect("JSON");
    assert_eq!(printed[0]["name"], "time");
    assert_eq!(ask(&daemon, &["rm", "time"]).ok(), "time\n");
    assert_eq!(ask(&daemon, &["rm", "other"]).code, Some(1));
    assert_eq!(ask(&daemon, &["rm", "-f", "other"]).code, Some(0));
}

/// One document and nothing else, and how the command ended.
fn printed(daemon: &Scripted, args: &[&str]) -> (Value, Option<i32>) {
    let output = ask(daemon, &[&["-o", "json"], args].concat());
    let printed = serde_json::from_str(&output.stdout);
    (
        printed.unwrap_or_else(|_| panic!("{}", output.all())),
        output.code,
    )
}

#[test]
fn an_import_prints_its_report_and_the_servers_as_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("mcp.json");
    fs::write(&file, r#"{"mcpServers": {"time": {"command": "uvx"}}}"#).expect("written");
    let file = file.to_str().expect("text");
    for (end, expected) in [("connected", 0), ("error", 1)] {
        let (printed, code) = printed(&daemon(end), &["import", file]);
        assert_eq!(code, Some(expected), "{printed}");
        assert_eq!(printed["added"], json!(["time"]));
        assert_eq!(printed["replaced"], json!([]));
        assert_eq!(
            printed["skipped"],
            json!([{"name": "far", "why": "it is a remote server"}])
        );
        assert_eq!(printed["notices"], json!(["`time`: something to know"]));
        let servers = printed["servers"].as_array().expect("a list");
        assert_eq!(servers.len(), 1, "{printed}");
        assert_eq!(servers[0]["name"], "time");
        assert_eq!(servers[0]["runtime"]["status"], end);
    }
}

#[test]
fn logs_are_printed_as_they_are_for_programs() {
    let (printed, code) = printed(&daemon("connected"), &["logs", "time"]);
    assert_eq!(code, Some(0));
    let expected = json!({
        "stderr": "a\u{1b}[2J\nb\n", "install": "Resolving\n", "protocol": ["> initialize 1"],
    });
    assert_eq!(printed, expected);
}

#[test]
fn restart_and_stop_print_their_servers() {
    for (end, args, status, expected) in [
        ("connected", &["restart"][..], "connected", 0),
        ("error", &["restart"], "error", 1),
        ("error", &["restart", "--reinstall"], "error", 1),
        // Without waiting, the result of the start is not known.
        ("error", &["restart", "--no-wait"], "error", 0),
        ("connected", &["stop"], "stopped", 0),
    ] {
        let daemon = daemon(end);
        let (one, code) = printed(&daemon, &[args, &["time"]].concat());
        assert_eq!(code, Some(expected), "{args:?}: {one}");
        assert_eq!(one["name"], "time", "{args:?}");
        assert_eq!(one["path"], "/mcp/time", "{args:?}");
        assert_eq!(one["runtime"]["status"], status, "{args:?}");
        let (several, code) = printed(&daemon, &[args, &["time", "time"]].concat());
        assert_eq!(code, Some(expected), "{args:?}: {several}");
        assert_eq!(several, json!([one, one]), "{args:?}");
    }
    // After an error, the remaining servers are stopped and printed.
    let (one, code) = printed(&daemon("connected"), &["stop", "other", "time"]);
    assert_eq!((&one["name"], code), (&json!("time"), Some(1)));
}

#[test]
fn a_removal_prints_what_is_gone() {
    let daemon = daemon("connected");
    for (args, removed, expected) in [
        (&["time"][..], json!(["time"]), 0),
        (&["other", "time"], json!(["time"]), 1),
        (&["-f", "other", "time"], json!(["time"]), 0),
        (&["other"], json!([]), 1),
        (&["-f", "other"], json!([]), 0),
    ] {
        let (printed, code) = printed(&daemon, &[&["rm"], args].concat());
        assert_eq!(printed, json!({"removed": removed}), "{args:?}");
        assert_eq!(code, Some(expected), "{args:?}");
    }
}

fn config(args: &[&str]) -> String {
    let printed = run(&[&["mcp", "config"], args].concat()).ok();
    printed.replace(env!("CARGO_BIN_EXE_boxwood"), "/usr/bin/boxwood")
}

#[test]
fn a_configuration_for_named_servers_needs_no_daemon() {
    assert_snapshot!(config(&["time", "git", "--client", "claude"]), @r#"
    {
      "mcpServers": {
        "git": {
          "args": [
            "mcp",
            "proxy",
            "git"
          ],
          "command": "/usr/bin/boxwood"
        },
        "time": {
          "args": [
            "mcp",
            "proxy",
            "time"
          ],
          "command": "/usr/bin/boxwood"
        }
      }
    }
    "#);
    assert_snapshot!(config(&["time", "--client", "cursor", "--http"]), @r#"
    {
      "mcpServers": {
        "time": {
          "url": "http://127.0.0.1:5410/mcp/time"
        }
      }
    }
    "#);
    assert_snapshot!(config(&["--all", "--client", "vscode", "--url", "http://10.0.0.1:5410"]), @r#"
    {
      "servers": {
        "boxwood": {
          "args": [
            "mcp",
            "proxy",
            "_all",
            "--url",
            "http://10.0.0.1:5410"
          ],
          "command": "/usr/bin/boxwood",
          "type": "stdio"
        }
      }
    }
    "#);
}

#[test]
fn a_configuration_names_every_enabled_server_and_no_token() {
    let daemon = daemon("connected");
    let output = boxwood()
        .args([
            "mcp",
            "config",
            "--client",
            "vscode",
            "--http",
            "--url",
            &daemon.url,
        ])
        .env("BOXWOOD_TOKEN", "hunter2")
        .output()
        .expect("output");
    let text = CommandResult::from(output).ok();
    assert!(!text.contains("hunter2"), "{text}");
    let printed: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        printed["servers"]["time"]["url"],
        format!("{}/mcp/time", daemon.url)
    );
    assert_eq!(printed["inputs"][0]["password"], true);
}

#[test]
fn help_teaches_with_examples() {
    let text = help(&["mcp"]);
    for line in [
        "Run MCP servers in boxes",
        "boxwood mcp import ~/.cursor/mcp.json",
        "http://127.0.0.1:5410/mcp/NAME",
    ] {
        assert!(text.contains(line), "`{line}` in\n{text}");
    }
    let text = help(&["mcp", "add"]);
    for line in [
        "--no-host-path",
        "--box-env <KEY=VALUE>",
        "These values are visible, so do not use them for secrets",
    ] {
        assert!(text.contains(line), "`{line}` in\n{text}");
    }
    for verb in [
        "add", "import", "ls", "status", "logs", "tools", "call", "test", "start", "restart",
        "stop", "enable", "disable", "rm", "proxy", "config",
    ] {
        let text = help(&["mcp", verb]);
        assert!(text.contains("Examples:"), "{text}");
        assert!(text.contains(&format!("boxwood mcp {verb}")), "{text}");
    }
}
