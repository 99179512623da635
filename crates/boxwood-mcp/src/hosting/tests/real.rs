//! Real processes: small scripts that speak MCP, or fail to.

use std::time::Duration;

use boxwood_api::{McpPhase, McpStatus};
use serde_json::{Value, json};

use super::Fixture;

pub(super) const SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "script", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        text = os.environ.get("TOKEN", "none") + " " + json.dumps(message["params"]["arguments"])
        result = {"content": [{"type": "text", "text": text}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// Contains no host path, so that nothing is installed or copied.
fn script(name: &str, code: &str) -> Value {
    json!({
        "name": name, "command": "env", "args": ["PYTHONUNBUFFERED=1", "sh", "-c", "exec python3 -c \"$CODE\""],
        "env": {"CODE": code, "TOKEN": "from-the-secrets"},
        "box": {"startup_timeout_sec": 20},
    })
}

fn impatient() -> Fixture {
    Fixture::with(|settings| settings.retry_delays = [Duration::from_millis(10); 3])
}

#[tokio::test]
async fn a_real_process_is_connected_called_and_stopped() {
    let fixture = impatient();
    let real = fixture.add(script("real", SERVER)).await;
    let server = fixture.hosting.server(&real).await;
    if let Err(error) = server {
        panic!("{error}: {:#?}", fixture.runtime_of(&real));
    }
    let arguments = json!({"a": [1, 2]})
        .as_object()
        .cloned()
        .expect("an object");
    let result = fixture
        .hosting
        .call(&real, "echo", arguments)
        .await
        .expect("a result");
    assert!(result.get().contains("from-the-secrets"), "{result}");
    let process = fixture
        .runtime
        .process("mcp-real", "main")
        .expect("a process");
    fixture.hosting.remove(&real).await.expect("removed");
    assert!(!process.is_running());
}

async fn fails(code: &str) -> (McpPhase, String) {
    let fixture = impatient();
    let broken = fixture.add(script("broken", code)).await;
    let failed = fixture.until_status(&broken, McpStatus::Error).await;
    assert_eq!(fixture.runtime.names(), [""; 0], "nothing is left running");
    let phase = failed.error_phase.expect("a phase");
    (phase, failed.error_message.expect("a message"))
}

#[tokio::test]
async fn garbage_on_stdout_fails_in_a_named_phase() {
    let (phase, message) = fails("while True: print('log line')").await;
    assert_eq!(phase, McpPhase::McpInit);
    assert!(message.contains("not MCP messages"), "{message}");
}

#[tokio::test]
async fn a_traceback_is_in_the_error() {
    let (phase, message) = fails("import sys\nsys.exit('AttributeError: no list_tools')").await;
    assert_eq!(phase, McpPhase::McpInit);
    assert!(
        message.contains("AttributeError: no list_tools"),
        "{message}"
    );
}

#[tokio::test]
async fn a_missing_command_fails_in_phase_process_start() {
    let fixture = impatient();
    let spec = json!({"name": "none", "command": "no-such-program"});
    let none = fixture.add(spec).await;
    let failed = fixture.until_status(&none, McpStatus::Error).await;
    assert_eq!(
        failed.error_phase,
        Some(McpPhase::ProcessStart),
        "{failed:?}"
    );
}
