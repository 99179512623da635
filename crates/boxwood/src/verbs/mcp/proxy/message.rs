//! The parts of a JSON-RPC message that the bridge needs. The message itself is forwarded unparsed.

use serde::Deserialize;
use serde_json::Value;

const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// One message, or a batch of them.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) messages: Vec<Message>,
    is_batch: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    pub(super) id: Option<Value>,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) params: Value,
}

impl Line {
    /// `None` if the line is not JSON-RPC.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = line.trim_ascii();
        let is_batch = line.starts_with(b"[");
        let messages = if is_batch {
            serde_json::from_slice::<Vec<Message>>(line).ok()?
        } else {
            vec![serde_json::from_slice(line).ok()?]
        };
        (!messages.is_empty()).then_some(Self { messages, is_batch })
    }

    /// `None` for a batch.
    pub(super) fn single(&self) -> Option<&Message> {
        self.messages.first().filter(|_| !self.is_batch)
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.single().and_then(|message| message.method.as_deref()) == Some(method)
    }

    /// The protocol version that a modern request declares in its `_meta`. `None` for legacy messages.
    pub(super) fn modern_version(&self) -> Option<&str> {
        self.single()?.params["_meta"][VERSION_META].as_str()
    }

    pub(super) fn request_ids(&self) -> Vec<Value> {
        let requests = self.messages.iter().filter(|one| one.method.is_some());
        requests.filter_map(|request| request.id.clone()).collect()
    }

    pub(super) fn response_ids(&self) -> impl Iterator<Item = &Value> {
        let responses = self.messages.iter().filter(|one| one.method.is_none());
        responses.filter_map(|response| response.id.as_ref())
    }

    /// The id of the request that `notifications/cancelled` refers to.
    pub(super) fn cancelled_id(&self) -> Option<&Value> {
        let message = self.single().filter(|_| self.is("notifications/cancelled"));
        message?.params.get("requestId")
    }

    /// For error messages.
    pub(super) fn description(&self) -> &str {
        match self.single() {
            None => "batch",
            Some(message) => message.method.as_deref().unwrap_or("response"),
        }
    }

    /// Returns true if the request can be sent again after its response was lost.
    pub(super) fn is_idempotent(&self) -> bool {
        let method = self.single().and_then(|message| message.method.as_deref());
        method.is_some_and(|method| {
            let last = method.rsplit('/').next().unwrap_or_default();
            matches!(
                last,
                "list" | "read" | "get" | "complete" | "discover" | "listen"
            ) || matches!(method, "ping" | "initialize")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(text.as_bytes()).expect("a message")
    }

    #[test]
    fn requests_responses_and_notifications_are_distinguished() {
        let request = line(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}"#);
        assert_eq!(request.request_ids(), [json!("a")]);
        assert!(!request.is_idempotent());
        let response = line(r#"{"id":1,"result":{}}"#);
        assert_eq!(response.request_ids(), [Value::Null; 0]);
        assert_eq!(response.response_ids().collect::<Vec<_>>(), [&json!(1)]);
        let cancelled = line(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!(cancelled.cancelled_id(), Some(&json!(7)));
        assert!(cancelled.request_ids().is_empty());
        let odd = line(r#"{"id":null,"method":"x","params":[1]}"#);
        assert!(odd.request_ids().is_empty() && odd.modern_version().is_none());
        assert!(line(r#"{"id":1,"method":"resources/templates/list"}"#).is_idempotent());
    }

    #[test]
    fn a_batch_has_the_ids_of_its_messages() {
        let batch = line(
            r#" [{"id":1,"method":"x"}, {"method":"n"}, {"id":"a","method":"y"}, {"id":7,"result":{}}]"#,
        );
        assert_eq!(batch.request_ids(), [json!(1), json!("a")]);
        assert_eq!(batch.response_ids().collect::<Vec<_>>(), [&json!(7)]);
        assert!(!batch.is_idempotent());
        assert_eq!(batch.description(), "batch");
    }

    #[test]
    fn a_modern_request_declares_its_version() {
        let read = line(
            r#"{"id":1,"method":"resources/read","params":{"uri":"a://b","_meta":
            {"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!(read.modern_version(), Some("2026-07-28"));
    }

    #[test]
    fn other_input_is_not_a_message() {
        for wrong in ["", "x", "7", "\"a\"", "[]", "[7]", "{", "\u{1}"] {
            assert!(Line::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(Line::parse(b"\xff").is_none());
    }
}
