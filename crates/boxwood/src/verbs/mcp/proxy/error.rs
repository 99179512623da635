//! JSON-RPC errors for requests that got no response from the gateway.

use boxwood_api::{ErrorBody, with_causes};
use boxwood_client::ClientError;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const UNREACHABLE: i64 = -32000;

#[derive(Debug)]
pub(super) enum BridgeError {
    NotJsonRpc,
    Batch,
    Unreachable(ClientError),
    /// The connection was lost after the request was sent.
    Interrupted {
        method: String,
    },
    Refused {
        status: u16,
        body: Bytes,
    },
}

impl BridgeError {
    pub(super) fn interrupted(method: &str) -> Self {
        Self::Interrupted {
            method: method.to_owned(),
        }
    }

    /// The error as a response to the request with this id.
    pub(super) fn response(&self, id: &Value) -> String {
        let error = match self {
            Self::Refused { status, body } => {
                let rpc: Option<RpcRefusal<'_>> = serde_json::from_slice(body).ok();
                // Passed on byte for byte.
                match rpc {
                    Some(rpc) => return with_id(id, rpc.error.get()),
                    None => http_refusal(*status, body),
                }
            }
            Self::NotJsonRpc => {
                json!({"code": PARSE_ERROR, "message": "the line is not a JSON-RPC message"})
            }
            Self::Batch => json!({
                "code": INVALID_REQUEST,
                "message": "batches are not supported; send one message at a time",
            }),
            Self::Unreachable(cause) => {
                let mut error = json!({"code": UNREACHABLE, "message": with_causes(cause)});
                if let Some(hint) = cause.hint() {
                    error["data"] = json!({"hint": hint});
                }
                error
            }
            Self::Interrupted { method } => json!({
                "code": UNREACHABLE,
                "message": format!(
                    "the connection to the daemon was lost during `{method}`; whether it was carried out is not known"
                ),
                "data": {"hint": "check the result before repeating the request"},
            }),
        };
        with_id(id, &error.to_string())
    }
}

#[derive(Deserialize)]
struct RpcRefusal<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: IgnoredAny,
    #[serde(borrow)]
    error: &'a RawValue,
}

fn with_id(id: &Value, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// Translates an error of the daemon or of an HTTP proxy.
fn http_refusal(status: u16, body: &[u8]) -> Value {
    if let Ok(ErrorBody { error: detail }) = serde_json::from_slice(body) {
        let mut data = json!({"code": detail.code.as_str(), "status": status});
        if let Some(hint) = detail.hint {
            data["hint"] = Value::String(hint);
        }
        return json!({"code": UNREACHABLE, "message": detail.message, "data": data});
    }
    json!({
        "code": UNREACHABLE,
        "message": format!("the gateway answered with HTTP status {status}"),
        "data": {"status": status},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(id: &Value, status: u16, body: &'static str) -> String {
        let body = Bytes::from_static(body.as_bytes());
        BridgeError::Refused { status, body }.response(id)
    }

    fn parsed(response: &str) -> Value {
        serde_json::from_str(response).expect("JSON")
    }

    #[test]
    fn a_refusal_of_the_gateway_gets_the_id_of_the_request() {
        let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"gone","data":{"x":1.50}}}"#;
        assert_eq!(
            refused(&json!("a"), 404, body),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32001,"message":"gone","data":{"x":1.50}}}"#
        );
    }

    #[test]
    fn an_error_of_the_daemon_keeps_its_hint() {
        let body =
            r#"{"error":{"code":"unauthorized","message":"a token is needed","hint":"set it"}}"#;
        assert_eq!(
            parsed(&refused(&json!(1), 401, body)),
            json!({"jsonrpc": "2.0", "id": 1, "error": {
                "code": -32000, "message": "a token is needed",
                "data": {"code": "unauthorized", "status": 401, "hint": "set it"},
            }})
        );
        let other = parsed(&refused(&Value::Null, 502, "<html>"));
        assert_eq!(other["id"], Value::Null);
        assert_eq!(other["error"]["data"]["status"], 502);
    }
}
