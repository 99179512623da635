//! A tool, called by hand.

use std::time::Duration;

use boxwood_api::McpPhase;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::HostingError;
use super::server::Server;
use super::tools::own_params;
use crate::wire::{Ask, CallError};

/// Of why a server refused a call.
const SHOWN_CHARS: usize = 2_000;

pub(crate) async fn call(
    server: &Server,
    tool: &str,
    arguments: Map<String, Value>,
    within: Duration,
) -> Result<Box<RawValue>, HostingError> {
    // One that the filter keeps back is as good as missing, and nothing tells which it was.
    if !server.filter().admits(tool) {
        return Err(HostingError::ToolNotFound {
            server: server.name().clone(),
            tool: tool.to_owned(),
        });
    }
    let raw = |value: &Value| {
        to_raw_value(value).map_err(|error| HostingError::invalid("arguments", error.to_string()))
    };
    let mut params = own_params(server.greeting().era);
    params.set("name", raw(&Value::String(tool.to_owned()))?);
    params.set("arguments", raw(&Value::Object(arguments))?);
    let main = server.main();
    let asked = main.request("tools/call", Some(params.raw()), Ask::within(within));
    let answer = asked
        .await
        .map_err(|error| of_call(server, error, within))?;
    if let Some(result) = answer.outcome() {
        return Ok(result.to_owned());
    }
    let (code, message) = answer.error_words().unwrap_or_default();
    let message: String = server
        .secrets()
        .hide(message)
        .chars()
        .take(SHOWN_CHARS)
        .collect();
    Err(HostingError::CallRefused {
        server: server.name().clone(),
        code,
        message,
    })
}

fn of_call(server: &Server, error: CallError, within: Duration) -> HostingError {
    let name = server.name().clone();
    match error {
        CallError::TimedOut { .. } => HostingError::TimedOut {
            name,
            seconds: within.as_secs(),
            phase: Some(McpPhase::ToolCall),
        },
        CallError::Busy { .. } => HostingError::Full {
            message: error.to_string(),
        },
        other => HostingError::Failed {
            phase: McpPhase::ToolCall,
            message: other.to_string(),
            hint: Some(format!("`boxwood mcp logs {name}` shows what it was doing")),
        },
    }
}
