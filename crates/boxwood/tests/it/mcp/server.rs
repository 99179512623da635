//! `boxwood mcp-server` without a daemon.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::command::{boxwood, help, run};

fn printed(arguments: &[&str]) -> Value {
    let output = run(&[&["mcp-server", "--print-config"], arguments].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    serde_json::from_str(&output.stdout).expect("JSON")
}

#[test]
fn a_configuration_starts_the_program_that_printed_it() {
    let program = env!("CARGO_BIN_EXE_boxwood");
    let written = printed(&["claude", "--session", "build"]);
    assert_eq!(
        written["mcpServers"]["boxwood"],
        json!({"command": program, "args": ["mcp-server", "--session", "build"]})
    );
    let written = printed(&["vscode", "--url", "http://10.0.0.1:5410"]);
    assert_eq!(
        written["servers"]["boxwood"]["args"],
        json!(["mcp-server", "--url", "http://10.0.0.1:5410"])
    );
}

#[test]
fn an_http_configuration_contains_the_daemons_address() {
    let written = printed(&["cursor", "--http"]);
    assert_eq!(
        written["mcpServers"]["boxwood"],
        json!({"url": "http://127.0.0.1:5410/mcp"})
    );
    let output = run(&[
        "mcp-server",
        "--print-config",
        "cursor",
        "--http",
        "--url",
        "unix:///run/boxwood/boxwood.sock",
    ]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("omit --http"), "{output:?}");
}

#[test]
fn a_token_is_never_printed() {
    let output = boxwood()
        .args(["mcp-server", "--print-config", "claude", "--http"])
        .env("BOXWOOD_TOKEN", "very-secret")
        .output()
        .expect("output");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("Bearer ${BOXWOOD_TOKEN}"), "{text}");
    assert!(!text.contains("very-secret"));
}

#[test]
fn an_invalid_setting_is_reported_with_its_cause() {
    let output = boxwood()
        .args(["mcp-server", "--url", "http://127.0.0.1:1"])
        .env("BOX__FORCE_SESSION_ID_TEMPLATE", "{a")
        .output()
        .expect("output");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("\n  caused by: "), "{stderr}");
}

#[test]
fn without_a_daemon_tools_are_listed_and_calls_refused() {
    let mut child = boxwood()
        // Nothing listens there.
        .args(["mcp-server", "--url", "http://127.0.0.1:1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let mut input = child.stdin.take().expect("stdin");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let mut ask = |message: &Value, answers: bool| {
        writeln!(input, "{message}").expect("write");
        answers.then(|| {
            let line = lines.next().expect("an answer").expect("read");
            serde_json::from_str::<Value>(&line).expect("JSON")
        })
    };
    let opened = ask(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }}),
        true,
    );
    assert_eq!(
        opened.expect("answer")["result"]["serverInfo"]["name"],
        "boxwood"
    );
    let opened = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    ask(&opened, false);
    let listed = ask(
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        true,
    );
    let result = &listed.expect("answer")["result"];
    assert_eq!(result["tools"].as_array().map(Vec::len), Some(8));
    assert_eq!(
        result["_meta"]["io.boxwood/unavailable"]["state"],
        "unavailable"
    );
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"command": "touch /should-not-exist"},
    }});
    let refused = ask(&call, true).expect("answer");
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let text = refused["result"]["content"][0]["text"].as_str();
    assert!(
        text.is_some_and(|text| text.contains("not available")),
        "{text:?}"
    );
    drop(input);
    assert!(child.wait().expect("end").success());
}

#[test]
fn help_text() {
    insta::assert_snapshot!(help(&["mcp-server"]), @r"
    Serve the agent tools to an MCP client

    Uses the Model Context Protocol on stdin and stdout, and is normally started by the client. The
    tools run in a box of the daemon.

    Usage: boxwood mcp-server [OPTIONS]

    Options:
          --session <NAME>
              Session in which the tools run [default: one for each working directory]

          --print-config <CLIENT>
              Print the configuration for a client and exit

              Possible values:
              - claude: Claude Desktop and Claude Code
              - cursor
              - vscode: Visual Studio Code

          --http
              With --print-config: connect to the daemon over HTTP instead of starting this command

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      -o, --output <FORMAT>
              Output format

              Possible values:
              - table: Tables and text
              - json:  JSON

              [env: BOXWOOD_OUTPUT]
              [default: table]

          --url <URL>
              Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`

              [env: BOXWOOD_URL]

    Examples:
      boxwood mcp-server --print-config claude          Print the configuration for .mcp.json
      boxwood mcp-server --print-config vscode --http   The same, for a client that uses HTTP
      boxwood mcp-server --session build                Run the tools in the session `build`

    Needs a daemon (`boxwood serve`). Calls continue when the daemon is restarted. The same tools are
    available at http://127.0.0.1:5410/mcp.
    ");
}
