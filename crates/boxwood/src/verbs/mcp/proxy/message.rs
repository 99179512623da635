//! The parts of a JSON-RPC message that the bridge needs. The message itself is forwarded unparsed.

use serde::Deserialize;
use serde_json::Value;

use super::error::BridgeError;

const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    pub(super) id: Option<Value>,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) params: Value,
}

impl Message {
    pub(super) fn parse(line: &[u8]) -> Result<Self, BridgeError> {
        let line = line.trim_ascii();
        if line.starts_with(b"[") {
            return Err(BridgeError::Batch);
        }
        serde_json::from_slice(line).map_err(|_| BridgeError::NotJsonRpc)
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// The protocol version that a modern request declares in its `_meta`. `None` for legacy messages.
    pub(super) fn modern_version(&self) -> Option<&str> {
        self.params["_meta"][VERSION_META].as_str()
    }

    /// `None` if this is a notification or a response.
    pub(super) fn request_id(&self) -> Option<&Value> {
        self.id.as_ref().filter(|_| self.method.is_some())
    }

    /// `None` if this is a notification or a request.
    pub(super) fn response_id(&self) -> Option<&Value> {
        self.id.as_ref().filter(|_| self.method.is_none())
    }

    /// The id of the request that `notifications/cancelled` refers to.
    pub(super) fn cancelled_id(&self) -> Option<&Value> {
        let params = Some(&self.params).filter(|_| self.is("notifications/cancelled"));
        params?.get("requestId")
    }

    /// For error messages.
    pub(super) fn description(&self) -> &str {
        self.method.as_deref().unwrap_or("response")
    }

    /// Returns true if the request can be sent again after its response was lost.
    pub(super) fn is_idempotent(&self) -> bool {
        let method = self.description();
        let last = method.rsplit('/').next().unwrap_or_default();
        matches!(
            last,
            "list" | "read" | "get" | "complete" | "discover" | "listen"
        ) || matches!(method, "ping" | "initialize")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(text.as_bytes()).expect("a message")
    }

    #[test]
    fn requests_responses_and_notifications_are_distinguished() {
        let request = message(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}"#);
        assert_eq!(request.request_id(), Some(&json!("a")));
        assert_eq!(request.response_id(), None);
        assert!(!request.is_idempotent());
        let response = message(r#" {"id":1,"result":{}}"#);
        assert_eq!(response.request_id(), None);
        assert_eq!(response.response_id(), Some(&json!(1)));
        let cancelled = message(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!(cancelled.cancelled_id(), Some(&json!(7)));
        assert_eq!(cancelled.request_id(), None);
        let odd = message(r#"{"id":null,"method":"x","params":[1]}"#);
        assert!(odd.request_id().is_none() && odd.modern_version().is_none());
        assert!(message(r#"{"id":1,"method":"resources/templates/list"}"#).is_idempotent());
    }

    #[test]
    fn a_batch_is_refused() {
        for batch in [r#" [{"id":1,"method":"x"}]"#, "[]", "[7]"] {
            let refused = Message::parse(batch.as_bytes());
            assert!(matches!(refused, Err(BridgeError::Batch)), "{batch}");
        }
    }

    #[test]
    fn a_modern_request_declares_its_version() {
        let read = message(
            r#"{"id":1,"method":"resources/read","params":{"uri":"a://b","_meta":
            {"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!(read.modern_version(), Some("2026-07-28"));
    }

    #[test]
    fn other_input_is_not_a_message() {
        for wrong in ["", "x", "7", "\"a\"", "{", "\u{1}"] {
            assert!(Message::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(Message::parse(b"\xff").is_err());
    }
}
