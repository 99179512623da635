//! Headers of the stateless era: they repeat what a body says.
//!
//! Comes in: requests, and the lists of tools that pass by. Goes out: the headers for a request. A client
//! on stdin has none to send, so the bridge adds them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use boxwood_client::{GatewayAnswer, GatewayHeaders};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::bridge::Bridge;
use super::peek::Peek;

const MARK: &str = "x-mcp-header";
/// More than any tool has; what is more is left out.
const MOST_MARKS: usize = 64;
const DEEPEST: usize = 16;
const MOST_TOOLS: usize = 10_000;
const MOST_PAGES: usize = 100;

/// Which arguments of which tools are repeated.
#[derive(Default)]
pub(super) struct Marks {
    tools: Mutex<HashMap<String, Vec<Mark>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    path: Vec<String>,
    header: String,
}

impl Marks {
    pub(super) fn headers(&self, peek: &Peek, line: &[u8], revision: &str) -> GatewayHeaders {
        let mut headers = vec![("mcp-protocol-version".to_owned(), encoded(revision))];
        if let Some(method) = &peek.method {
            headers.push(("mcp-method".to_owned(), encoded(method)));
        }
        if let Some(name) = &peek.name {
            headers.push(("mcp-name".to_owned(), encoded(name)));
            if peek.is("tools/call") {
                headers.extend(self.repeated(name, line));
            }
        }
        headers
    }

    /// The marked arguments of a call that are there.
    fn repeated(&self, tool: &str, line: &[u8]) -> GatewayHeaders {
        let marks = self.locked().get(tool).cloned().unwrap_or_default();
        if marks.is_empty() {
            return GatewayHeaders::new();
        }
        let call: Value = serde_json::from_slice(line).unwrap_or_default();
        let arguments = &call["params"]["arguments"];
        let header = |mark: Mark| {
            let argument = mark
                .path
                .iter()
                .try_fold(arguments, |at, key| at.get(key))?;
            let text = match argument {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(truth) => truth.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((mark.header, encoded(&text)))
        };
        marks.into_iter().filter_map(header).collect()
    }

    /// Remembers what the answer to a `tools/list` marks.
    pub(super) fn learn(&self, peek: &Peek, answer: &str) {
        if peek.is("tools/list") && answer.contains(MARK) {
            self.remember(&serde_json::from_str(answer).unwrap_or_default());
        }
    }

    fn remember(&self, answer: &Value) {
        let mut known = self.locked();
        for tool in answer["result"]["tools"].as_array().into_iter().flatten() {
            let (Some(name), Some(schema)) =
                (tool["name"].as_str(), tool["inputSchema"].as_object())
            else {
                continue;
            };
            let mut marks = Vec::new();
            collect(schema, &mut Vec::new(), &mut marks);
            // A server may change its mind.
            known.remove(name);
            if !marks.is_empty() && known.len() < MOST_TOOLS {
                known.insert(name.to_owned(), marks);
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Mark>>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn collect(schema: &Map<String, Value>, path: &mut Vec<String>, marks: &mut Vec<Mark>) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    if path.len() >= DEEPEST {
        return;
    }
    for (name, property) in properties {
        let Value::Object(property) = property else {
            continue;
        };
        path.push(name.clone());
        if let Some(header) = marked(property) {
            let is_new = marks.iter().all(|other| other.header != header);
            if is_new && marks.len() < MOST_MARKS {
                marks.push(Mark {
                    path: path.clone(),
                    header,
                });
            }
        }
        collect(property, path, marks);
        path.pop();
    }
}

/// The rules of the gateway: a simple value, and a name that a header can have.
fn marked(property: &Map<String, Value>) -> Option<String> {
    let name = property.get(MARK)?.as_str()?;
    let kind = property.get("type")?.as_str()?;
    let is_simple = matches!(kind, "string" | "integer" | "boolean");
    let is_token = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    (is_simple && is_token).then(|| format!("mcp-param-{}", name.to_ascii_lowercase()))
}

/// A value that any header can carry.
fn encoded(value: &str) -> String {
    let is_safe = value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if is_safe {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
    }
}

impl Bridge {
    /// Asks for the tools in the words of a call that was refused. Whether that can have helped.
    pub(super) async fn learn_tools(&self, call: &Bytes) -> bool {
        let call: Value = serde_json::from_slice(call).unwrap_or_default();
        let meta = &call["params"]["_meta"];
        let mut cursor = Value::Null;
        for _ in 0..MOST_PAGES {
            let mut params = json!({"_meta": meta});
            if !cursor.is_null() {
                params["cursor"] = cursor;
            }
            let ask = json!({
                "jsonrpc": "2.0", "id": "boxwood-tools", "method": "tools/list", "params": params,
            });
            let ask = Bytes::from(ask.to_string());
            let Some(peek) = Peek::at(&ask) else {
                return false;
            };
            let headers = self.headers(&peek, &ask, &self.session());
            let Some(answer) = self.answer_to(&peek, headers, ask).await else {
                return false;
            };
            self.marks.remember(&answer);
            cursor = answer["result"]["nextCursor"].clone();
            if cursor.is_null() {
                return true;
            }
        }
        true
    }

    /// For ourselves: nothing of it is for the client.
    pub(super) async fn answer_to(
        &self,
        peek: &Peek,
        headers: GatewayHeaders,
        ask: Bytes,
    ) -> Option<Value> {
        match self.post(&headers, ask, true).await.ok()? {
            GatewayAnswer::Message { body, .. } => serde_json::from_slice(&body).ok(),
            GatewayAnswer::Stream { mut events, .. } => {
                while let Ok(Some(event)) = events.next().await {
                    let inside = Peek::at(event.data.as_bytes()).unwrap_or_default();
                    if inside.answers(peek.id.as_deref()) {
                        return serde_json::from_str(&event.data).ok();
                    }
                }
                None
            }
            GatewayAnswer::Accepted | GatewayAnswer::Refused { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "2026-07-28";

    fn headers(marks: &Marks, line: &Value) -> Vec<(String, String)> {
        let line = line.to_string();
        let peek = Peek::at(line.as_bytes()).expect("a message");
        let mut headers = marks.headers(&peek, line.as_bytes(), REVISION);
        headers.sort();
        headers
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn headers_repeat_method_and_name() {
        let marks = Marks::default();
        let read = json!({"id": 1, "method": "resources/read", "params": {"uri": "a://é"}});
        assert_eq!(
            headers(&marks, &read),
            pairs(&[
                ("mcp-method", "resources/read"),
                ("mcp-name", "=?base64?YTovL8Op?="),
                ("mcp-protocol-version", REVISION),
            ])
        );
    }

    #[test]
    fn marked_arguments_are_repeated_once_the_tools_are_known() {
        let marks = Marks::default();
        let call = json!({"id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {
            "region": "eu", "count": 3, "deep": {"flag": true}, "ratio": 0.5, "other": "x",
        }}});
        assert_eq!(headers(&marks, &call).len(), 3);
        let list = json!({"id": 2, "method": "tools/list"}).to_string();
        let list = Peek::at(list.as_bytes()).expect("a message");
        let answer = json!({"id": 2, "result": {"tools": [{"name": "t", "inputSchema": {"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
            "deep": {"properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
            "ratio": {"type": "number", "x-mcp-header": "Ratio"},
            "other": {"type": "string", "x-mcp-header": "not a token"},
        }}}]}});
        marks.learn(&list, &answer.to_string());
        assert_eq!(
            headers(&marks, &call),
            pairs(&[
                ("mcp-method", "tools/call"),
                ("mcp-name", "t"),
                ("mcp-param-count", "3"),
                ("mcp-param-flag", "true"),
                ("mcp-param-region", "eu"),
                ("mcp-protocol-version", REVISION),
            ])
        );
    }

    #[test]
    fn every_value_fits_into_a_header() {
        assert_eq!(encoded("plain text"), "plain text");
        assert_eq!(encoded(" x"), "=?base64?IHg=?=");
        assert_eq!(encoded("a\nb"), "=?base64?YQpi?=");
        assert_eq!(encoded("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
    }
}
