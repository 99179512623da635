//! Calls a tool of a server on request of the API.

use std::time::Duration;

use boxwood_api::McpPhase;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::server::Server;
use super::tools::own_params;
use crate::hosting::HostingError;
use crate::wire::{CallError, CallOptions};

/// Limit for the server's error message.
const MAX_MESSAGE_CHARS: usize = 2_000;

pub(crate) async fn call(
    server: &Server,
    tool: &str,
    arguments: Map<String, Value>,
    timeout: Duration,
) -> Result<Box<RawValue>, HostingError> {
    // A filtered tool is reported like a missing one.
    if !server.filter().admits(tool) {
        return Err(HostingError::ToolNotFound {
            server: server.name().clone(),
            tool: tool.to_owned(),
        });
    }
    let raw = |value: &Value| {
        to_raw_value(value).map_err(|error| HostingError::invalid("arguments", error.to_string()))
    };
    let mut params = own_params(server.handshake().protocol);
    params.set("name", raw(&Value::String(tool.to_owned()))?);
    params.set("arguments", raw(&Value::Object(arguments))?);
    let main = server.main();
    let request = main.request(
        "tools/call",
        Some(params.raw()),
        CallOptions::with_timeout(timeout),
    );
    let response = request
        .await
        .map_err(|error| from_call_error(server, error, timeout))?;
    if let Some(result) = response.outcome() {
        return Ok(result.to_owned());
    }
    let (code, message) = response.error_parts().unwrap_or_default();
    let message: String = server
        .secrets()
        .hide(message)
        .chars()
        .take(MAX_MESSAGE_CHARS)
        .collect();
    Err(HostingError::CallRefused {
        server: server.name().clone(),
        code,
        message,
    })
}

fn from_call_error(server: &Server, error: CallError, timeout: Duration) -> HostingError {
    let name = server.name().clone();
    match error {
        CallError::TimedOut { .. } => HostingError::TimedOut {
            name,
            seconds: timeout.as_secs(),
            phase: Some(McpPhase::ToolCall),
        },
        CallError::Busy { .. } => HostingError::Full {
            message: error.to_string(),
        },
        other => HostingError::Failed {
            phase: McpPhase::ToolCall,
            message: other.to_string(),
            hint: Some(format!("`boxwood mcp logs {name}` shows its output")),
        },
    }
}
