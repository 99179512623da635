//! Headers of the modern protocol version, which repeat parts of the body.
//!
//! A client on stdin sends no headers, so the bridge derives them from the message.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use boxwood_client::GatewayHeaders;
use serde_json::Value;

use super::message::Message;

/// Schema keyword of an argument that is repeated in a header.
const KEYWORD: &str = "x-mcp-header";
const MAX_HEADERS: usize = 64;
const MAX_TOOLS: usize = 10_000;

/// The arguments to repeat, for each tool.
#[derive(Default)]
pub(super) struct ParamHeaders(Mutex<HashMap<String, Vec<ParamHeader>>>);

struct ParamHeader {
    /// Keys from the arguments object to the value.
    path: Vec<String>,
    header: String,
}

impl ParamHeaders {
    pub(super) fn headers(&self, message: &Message, version: &str) -> GatewayHeaders {
        let mut headers = vec![("mcp-protocol-version".to_owned(), encode(version))];
        if let Some(method) = &message.method {
            headers.push(("mcp-method".to_owned(), encode(method)));
        }
        if let Some(name) = mcp_name(message) {
            headers.push(("mcp-name".to_owned(), encode(name)));
            if message.is("tools/call") {
                headers.extend(self.arguments(name, &message.params["arguments"]));
            }
        }
        headers
    }

    fn arguments(&self, tool: &str, arguments: &Value) -> GatewayHeaders {
        let tools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let header = |known: &ParamHeader| {
            let path = &known.path;
            let argument = path.iter().try_fold(arguments, |at, key| at.get(key))?;
            let text = match argument {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => argument.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((known.header.clone(), encode(&text)))
        };
        let known = tools.get(tool).into_iter().flatten();
        known.filter_map(header).collect()
    }

    /// Stores the header names in the result of `tools/list`.
    pub(super) fn learn(&self, result: &Value) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tool in result["tools"].as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else {
                continue;
            };
            let mut found = Vec::new();
            collect(&tool["inputSchema"], &mut Vec::new(), &mut found);
            known.remove(name);
            if !found.is_empty() && known.len() < MAX_TOOLS {
                known.insert(name.to_owned(), found);
            }
        }
    }
}

/// The value of `Mcp-Name`.
fn mcp_name(message: &Message) -> Option<&str> {
    let key = match message.method.as_deref()? {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    message.params[key].as_str()
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = header_name(property)
            && found.len() < MAX_HEADERS
            && found.iter().all(|other| other.header != header)
        {
            found.push(ParamHeader {
                path: path.clone(),
                header,
            });
        }
        collect(property, path, found);
        path.pop();
    }
}

/// The gateway applies the same rules: a scalar type and a valid header name.
fn header_name(property: &Value) -> Option<String> {
    let name = property[KEYWORD].as_str()?;
    let kind = property["type"].as_str()?;
    let is_scalar = matches!(kind, "string" | "integer" | "boolean");
    let is_token = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    (is_scalar && is_token).then(|| format!("mcp-param-{}", name.to_ascii_lowercase()))
}

/// Encodes values that a header cannot carry unchanged.
fn encode(value: &str) -> String {
    let is_safe = value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if is_safe {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VERSION: &str = "2026-07-28";

    fn headers(known: &ParamHeaders, message: &Value) -> Vec<(String, String)> {
        let message = Message::parse(message.to_string().as_bytes()).expect("a message");
        let mut headers = known.headers(&message, VERSION);
        headers.sort();
        headers
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn headers_repeat_method_and_name() {
        let read = json!({"id": 1, "method": "resources/read", "params": {"uri": "a://é"}});
        assert_eq!(
            headers(&ParamHeaders::default(), &read),
            pairs(&[
                ("mcp-method", "resources/read"),
                ("mcp-name", "=?base64?YTovL8Op?="),
                ("mcp-protocol-version", VERSION),
            ])
        );
    }

    #[test]
    fn marked_arguments_are_repeated_once_the_tools_are_known() {
        let known = ParamHeaders::default();
        let call = json!({"id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {
            "region": "eu", "count": 3, "deep": {"flag": true}, "ratio": 0.5, "other": "x",
        }}});
        assert_eq!(headers(&known, &call).len(), 3);
        known.learn(
            &json!({"tools": [{"name": "t", "inputSchema": {"properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "count": {"type": "integer", "x-mcp-header": "Count"},
                "absent": {"type": "string", "x-mcp-header": "Absent"},
                "deep": {"properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
                "ratio": {"type": "number", "x-mcp-header": "Ratio"},
                "other": {"type": "string", "x-mcp-header": "not a token"},
            }}}]}),
        );
        assert_eq!(
            headers(&known, &call),
            pairs(&[
                ("mcp-method", "tools/call"),
                ("mcp-name", "t"),
                ("mcp-param-count", "3"),
                ("mcp-param-flag", "true"),
                ("mcp-param-region", "eu"),
                ("mcp-protocol-version", VERSION),
            ])
        );
        known.learn(&json!({"tools": [{"name": "t", "inputSchema": {}}]}));
        assert_eq!(headers(&known, &call).len(), 3);
    }

    #[test]
    fn values_that_a_header_cannot_carry_are_encoded() {
        assert_eq!(encode("plain text"), "plain text");
        assert_eq!(encode(" x"), "=?base64?IHg=?=");
        assert_eq!(encode("a\nb"), "=?base64?YQpi?=");
        assert_eq!(encode("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
    }
}
