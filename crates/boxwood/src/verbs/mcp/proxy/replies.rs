//! Answers that the bridge gives itself, where the gateway has none for the client.

use boxwood_api::ErrorBody;
use boxwood_client::ClientError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(super) const PARSE_ERROR: i64 = -32700;
/// The server, or the way to it, is not there.
const UNREACHABLE: i64 = -32000;

#[derive(Serialize)]
struct Reply<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: &'a RawValue,
}

/// An error for the request with this id, which is JSON.
pub(super) fn error(id: Option<&str>, code: i64, message: &str, data: &Value) -> String {
    let mut error = json!({"code": code, "message": message});
    if !data.is_null() {
        error["data"] = data.clone();
    }
    match RawValue::from_string(error.to_string()) {
        Ok(error) => with_id(id, &error),
        Err(_) => String::new(),
    }
}

fn with_id(id: Option<&str>, error: &RawValue) -> String {
    let id = id.and_then(|id| serde_json::from_str::<&RawValue>(id).ok());
    let reply = Reply {
        jsonrpc: "2.0",
        id: id.unwrap_or(RawValue::NULL),
        error,
    };
    serde_json::to_string(&reply).unwrap_or_default()
}

/// The gateway could not be asked, or did not answer to the end.
pub(super) fn unreachable(id: Option<&str>, cause: &ClientError) -> String {
    let mut message = cause.to_string();
    let mut source = std::error::Error::source(cause);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    let data = cause
        .hint()
        .map_or(Value::Null, |hint| json!({"hint": hint}));
    error(id, UNREACHABLE, &message, &data)
}

pub(super) fn broken_off(id: Option<&str>, method: &str) -> String {
    let message = format!(
        "the connection to the daemon was lost during `{method}`; whether it was carried out is not known"
    );
    error(
        id,
        UNREACHABLE,
        &message,
        &json!({"hint": "look before asking again"}),
    )
}

#[derive(Deserialize)]
struct Refusal<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    jsonrpc: Option<String>,
}

/// What the gateway refused, as an answer to the request with this id. A message of the gateway's keeps
/// its error as it is; other bodies are put into words.
pub(super) fn refusal(id: Option<&str>, status: u16, body: &[u8]) -> String {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let told: Option<Refusal<'_>> = serde_json::from_str(text).ok();
    if let Some(told) = &told
        && told.jsonrpc.is_some()
        && let Some(error) = told.error
    {
        return with_id(id, error);
    }
    if let Ok(ErrorBody { error: detail }) = serde_json::from_str(text) {
        let mut data = json!({"code": detail.code.as_str(), "status": status});
        if let Some(hint) = detail.hint {
            data["hint"] = Value::String(hint);
        }
        return error(id, UNREACHABLE, &detail.message, &data);
    }
    let message = format!("the gateway answered with HTTP status {status}");
    error(id, UNREACHABLE, &message, &json!({"status": status}))
}

/// The error's code, where the gateway's refusal is a message.
pub(super) fn refusal_code(body: &[u8]) -> Option<i64> {
    let refusal: Value = serde_json::from_slice(body).ok()?;
    refusal["error"]["code"].as_i64()
}

/// One message on one line. JSON has raw newlines only between its words.
pub(super) fn one_line(text: &str) -> String {
    let text = text.trim();
    if text.contains(['\n', '\r']) {
        text.replace(['\n', '\r'], " ")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reaches_the_request_that_it_is_about() {
        let body = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"gone","data":{"x":1.50}}}"#;
        assert_eq!(
            refusal(Some("\"a\""), 404, body),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32001,"message":"gone","data":{"x":1.50}}}"#
        );
        assert_eq!(refusal_code(body), Some(-32001));
    }

    #[test]
    fn complaints_of_the_daemon_keep_their_hint() {
        let body =
            br#"{"error":{"code":"unauthorized","message":"a token is needed","hint":"set it"}}"#;
        let reply: Value = serde_json::from_str(&refusal(Some("1"), 401, body)).expect("JSON");
        assert_eq!(
            reply,
            json!({"jsonrpc": "2.0", "id": 1, "error": {
                "code": -32000, "message": "a token is needed",
                "data": {"code": "unauthorized", "status": 401, "hint": "set it"},
            }})
        );
        let reply: Value = serde_json::from_str(&refusal(None, 502, b"<html>")).expect("JSON");
        assert_eq!(reply["id"], Value::Null);
        assert_eq!(reply["error"]["data"]["status"], 502);
    }

    #[test]
    fn messages_stand_on_one_line_and_are_otherwise_as_they_came() {
        assert_eq!(
            one_line("{\"a\": \"x\\n\",\r\n \"b\": 1.0}\n"),
            "{\"a\": \"x\\n\",   \"b\": 1.0}"
        );
        assert_eq!(one_line(" {\"a\":1} "), "{\"a\":1}");
    }
}
