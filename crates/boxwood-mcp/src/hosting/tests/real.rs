//! Real processes: small scripts that speak MCP, or fail to.

use std::time::Duration;

use boxwood_api::{McpPhase, McpStatus};
use serde_json::{Value, json};

use super::House;

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

/// Without a path of the host in it, so that nothing is installed or copied.
fn script(name: &str, code: &str) -> Value {
    json!({
        "name": name, "command": "env", "args": ["PYTHONUNBUFFERED=1", "sh", "-c", "exec python3 -c \"$CODE\""],
        "env": {"CODE": code, "TOKEN": "from-the-secrets"},
        "box": {"startup_timeout_sec": 20},
    })
}

fn impatient() -> House {
    House::with(|settings| settings.retry_delays = [Duration::from_millis(10); 3])
}

#[tokio::test]
async fn a_real_process_is_connected_called_and_stopped() {
    let house = impatient();
    let real = house.add(script("real", SERVER)).await;
    let server = house.hosting.server(&real).await;
    if let Err(error) = server {
        panic!("{error}: {:#?}", house.runtime_of(&real));
    }
    let arguments = json!({"a": [1, 2]})
        .as_object()
        .cloned()
        .expect("an object");
    let result = house
        .hosting
        .call(&real, "echo", arguments)
        .await
        .expect("a result");
    assert!(result.get().contains("from-the-secrets"), "{result}");
    let process = house
        .runtime
        .process("mcp-real", "main")
        .expect("a process");
    house.hosting.remove(&real).await.expect("removed");
    assert!(!process.is_running());
}

async fn fails(code: &str) -> (McpPhase, String) {
    let house = impatient();
    let broken = house.add(script("broken", code)).await;
    let failed = house.until_status(&broken, McpStatus::Error).await;
    assert_eq!(house.runtime.names(), [""; 0], "nothing is left running");
    let phase = failed.error_phase.expect("a phase");
    (phase, failed.error_message.expect("a message"))
}

#[tokio::test]
async fn garbage_on_stdout_ends_in_a_named_phase() {
    let (phase, message) = fails("while True: print('log line')").await;
    assert_eq!(phase, McpPhase::McpInit);
    assert!(message.contains("no MCP messages"), "{message}");
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
async fn a_command_that_is_not_there_is_told_in_phase_process_start() {
    let house = impatient();
    let spec = json!({"name": "none", "command": "no-such-program"});
    let none = house.add(spec).await;
    let failed = house.until_status(&none, McpStatus::Error).await;
    assert_eq!(
        failed.error_phase,
        Some(McpPhase::ProcessStart),
        "{failed:?}"
    );
}
