//! Lists the tools of a server for the API.

use std::time::Duration;

use boxwood_api::McpToolInfo;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::wire::{
    CallError, CallOptions, ClientIdentity, Connection, Handshake, Object, Protocol,
};

const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 5_000;
const MAX_BYTES: usize = 4 << 20;
/// JSON values in all tools. Each needs up to a hundred times its text in memory.
const MAX_VALUES: usize = 100_000;
/// Limit of an error message before redaction. It is cut further after redaction.
const MAX_ERROR_BYTES: usize = 64 << 10;
const METHOD_NOT_FOUND: i64 = -32601;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the server refused `tools/list` ({code}): {message}")]
    Refused { code: i64, message: String },
    #[error("the response to `tools/list` is invalid")]
    Unreadable,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, default)]
    tools: Vec<&'a RawValue>,
    #[serde(default, rename = "nextCursor")]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default, rename = "inputSchema")]
    parameters: Value,
}

/// Fetches all pages. `timeout` applies to all of them together.
pub(crate) async fn list(
    connection: &Connection,
    handshake: &Handshake,
    timeout: Duration,
) -> Result<Vec<McpToolInfo>, ListError> {
    if !handshake.has("tools") {
        return Ok(Vec::new());
    }
    let deadline = Instant::now() + timeout;
    let mut tools = Vec::new();
    let mut totals = Totals::default();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let params = params(handshake.protocol, cursor.as_deref());
        let response = connection
            .request("tools/list", params, CallOptions::internal(remaining))
            .await?;
        let Some(result) = response.outcome() else {
            let (code, mut message) = response.error_parts().unwrap_or_default();
            // Some servers declare tools and then do not implement the method.
            if code == METHOD_NOT_FOUND && tools.is_empty() {
                return Ok(tools);
            }
            message.truncate(message.floor_char_boundary(MAX_ERROR_BYTES));
            return Err(ListError::Refused { code, message });
        };
        let page: Page<'_> =
            serde_json::from_str(result.get()).map_err(|_| ListError::Unreadable)?;
        for raw in page.tools {
            if !totals.add(raw.get()) {
                return Ok(tools);
            }
            if let Ok(tool) = serde_json::from_str::<Tool>(raw.get()) {
                tools.push(tool.into());
            }
        }
        let is_new = page.next_cursor.is_some() && page.next_cursor != cursor;
        if !is_new {
            break;
        }
        cursor = page.next_cursor;
    }
    Ok(tools)
}

/// Size of the tools so far.
#[derive(Default)]
struct Totals {
    tools: usize,
    bytes: usize,
    values: usize,
}

impl Totals {
    /// Returns false if a limit is exceeded.
    fn add(&mut self, tool: &str) -> bool {
        self.tools += 1;
        self.bytes += tool.len();
        self.values += values_in(tool);
        self.tools <= MAX_TOOLS && self.bytes <= MAX_BYTES && self.values <= MAX_VALUES
    }
}

/// Upper bound of the number of values, without parsing.
fn values_in(json: &str) -> usize {
    let mut count = 1;
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b',' | b'{' | b'[' => count += 1,
            _ => {}
        }
    }
    count
}

fn skip_string(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}

/// Parameters for requests on Boxwood's own behalf.
pub(crate) fn own_params(protocol: Protocol) -> Object {
    match protocol {
        Protocol::Legacy => Object::default(),
        Protocol::Modern => {
            Object::parse(ClientIdentity::boxwood().stateless().get()).unwrap_or_default()
        }
    }
}

fn params(protocol: Protocol, cursor: Option<&str>) -> Option<Box<RawValue>> {
    let mut params = own_params(protocol);
    if let Some(cursor) = cursor.and_then(|cursor| to_raw_value(cursor).ok()) {
        params.set("cursor", cursor);
    }
    (!params.is_empty()).then(|| params.raw())
}

impl From<Tool> for McpToolInfo {
    fn from(tool: Tool) -> Self {
        Self {
            name: tool.name,
            description: tool.description.unwrap_or_default(),
            parameters: tool.parameters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        let cases = [
            ("1", 1),
            (r#""{,[""#, 1),
            (r#""a\",[\\""#, 1),
            ("[1,2,3]", 4),
            (r#"{"a":[{"b,":"c\"{"},null]}"#, 5),
        ];
        for (json, expected) in cases {
            assert_eq!(values_in(json), expected, "{json}");
        }
    }

    #[test]
    fn the_tool_list_is_bounded() {
        let shown = |tool: &str| {
            let mut totals = Totals::default();
            (0..2 * MAX_TOOLS).take_while(|_| totals.add(tool)).count()
        };
        assert_eq!(shown("{}"), MAX_TOOLS);
        let long = format!(r#"{{"description":"{}"}}"#, ",[{".repeat(MAX_BYTES / 8));
        assert_eq!(shown(&long), 2);
        let costly = format!("[{}0]", r#"{"":0},"#.repeat(MAX_VALUES / 8));
        assert!(costly.len() < MAX_BYTES / 8);
        assert_eq!(shown(&costly), 3);
    }
}
