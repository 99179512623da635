//! As much of a message as a bridge has to know.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::wishes::Wish;

/// A message's outside. Ids are the text they are written as: `1` and `"1"` are two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peek {
    pub(super) id: Option<String>,
    pub(super) method: Option<String>,
    /// Set when the message says itself which revision it is of, as those of the stateless era do.
    pub(super) revision: Option<String>,
    /// What `Mcp-Name` has to repeat.
    pub(super) name: Option<String>,
    /// Of `notifications/cancelled`.
    pub(super) cancels: Option<String>,
    /// Ids of the requests in it.
    pub(super) asks: Vec<String>,
    /// Ids of the answers in it.
    pub(super) settles: Vec<String>,
    /// Of the requests in it that tell a server what to say, with their ids.
    pub(super) wishes: Vec<(String, Wish)>,
    /// Several messages at once.
    is_batch: bool,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    uri: Option<&'a RawValue>,
    #[serde(borrow)]
    level: Option<&'a RawValue>,
    #[serde(borrow, rename = "taskId")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    revision: Option<&'a RawValue>,
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

impl Peek {
    /// `None` for what is no JSON-RPC.
    pub(super) fn at(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim();
        if line.starts_with('[') {
            return Self::at_batch(line);
        }
        Self::at_one(line)
    }

    fn at_batch(line: &str) -> Option<Self> {
        let several: Vec<&RawValue> = serde_json::from_str(line).ok()?;
        let mut batch = Self {
            is_batch: true,
            ..Self::default()
        };
        for one in &several {
            let inside = Self::at_one(one.get())?;
            batch.asks.extend(inside.asks);
            batch.settles.extend(inside.settles);
            batch.wishes.extend(inside.wishes);
        }
        (!several.is_empty()).then_some(batch)
    }

    fn at_one(line: &str) -> Option<Self> {
        let envelope: Envelope<'_> = serde_json::from_str(line).ok()?;
        let method = envelope.method.map(Cow::into_owned);
        // Params in a list have no names.
        let params: Params<'_> = envelope
            .params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        let meta: Meta<'_> = params
            .meta
            .and_then(|meta| serde_json::from_str(meta.get()).ok())
            .unwrap_or_default();
        let name = match method.as_deref() {
            Some("tools/call" | "prompts/get") => text(params.name),
            Some("resources/read") => text(params.uri),
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => text(params.task_id),
            _ => None,
        };
        let wish = match method.as_deref() {
            Some("logging/setLevel") => text(params.level).map(Wish::Level),
            Some("resources/subscribe") => text(params.uri).map(Wish::Subscribe),
            Some("resources/unsubscribe") => text(params.uri).map(Wish::Unsubscribe),
            _ => None,
        };
        let cancels = (method.as_deref() == Some("notifications/cancelled"))
            .then(|| params.request_id.map(|id| id.get().to_owned()))
            .flatten();
        let id = envelope.id.map(|id| id.get().to_owned());
        let wishes = id.clone().zip(wish).into_iter().collect();
        let (asks, settles) = match method {
            Some(_) => (id.clone(), None),
            None => (None, id.clone()),
        };
        Some(Self {
            id,
            method,
            revision: text(meta.revision),
            name,
            cancels,
            asks: asks.into_iter().collect(),
            settles: settles.into_iter().collect(),
            wishes,
            is_batch: false,
        })
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    pub(super) fn is_request(&self) -> bool {
        !self.asks.is_empty()
    }

    /// Whether it is the answer to the request with this id.
    pub(super) fn answers(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.settles.iter().any(|settled| settled == id))
    }

    /// What to call it before a person.
    pub(super) fn what(&self) -> &str {
        match &self.method {
            Some(method) => method,
            None if self.is_batch => "a batch",
            None => "an answer",
        }
    }

    /// Whether asking twice is the same as asking once.
    pub(super) fn is_repeatable(&self) -> bool {
        let Some(method) = self.method.as_deref() else {
            return false;
        };
        let is_question = [
            "/list",
            "/read",
            "/get",
            "/complete",
            "/discover",
            "/listen",
        ]
        .iter()
        .any(|ending| method.ends_with(ending));
        is_question || matches!(method, "ping" | "initialize" | "resources/templates/list")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peek(line: &str) -> Peek {
        Peek::at(line.as_bytes()).expect("a message")
    }

    #[test]
    fn a_message_is_known_by_its_outside() {
        let request =
            peek(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x\ny"}}"#);
        assert_eq!(request.id.as_deref(), Some("\"a\""));
        assert_eq!(request.name.as_deref(), Some("x\ny"));
        assert!(request.is_request() && !request.is_repeatable());
        let answer = peek(r#"{"id":1,"result":{}}"#);
        assert!(
            answer.answers(Some("1")) && !answer.answers(Some("\"1\"")) && !answer.is_request()
        );
        let note = peek(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!(
            (note.cancels.as_deref(), note.is_request()),
            (Some("7"), false)
        );
        let odd = peek(r#"{"id":null,"method":"x","params":[1]}"#);
        assert_eq!((odd.id, odd.name), (None, None));
        assert!(peek(r#"{"id":1,"method":"tools/list"}"#).is_repeatable());
    }

    #[test]
    fn a_batch_asks_what_the_requests_in_it_ask() {
        let batch = peek(
            r#" [{"id":1,"method":"x"}, {"method":"n"}, {"id":"a","method":"y"}, {"id":7,"result":{}}]"#,
        );
        assert_eq!(batch.asks, ["1", "\"a\""]);
        assert_eq!(batch.settles, ["7"]);
        assert!(batch.is_request() && !batch.is_repeatable());
        assert!(batch.answers(Some("7")) && !batch.answers(Some("1")));
        let news = peek(r#"[{"method":"n"}]"#);
        assert_eq!((news.is_request(), news.what()), (false, "a batch"));
    }

    #[test]
    fn the_stateless_era_is_known_by_its_meta() {
        let line = r#"{"id":1,"method":"resources/read","params":{"uri":"a://b","_meta":
            {"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(peek(line).revision.as_deref(), Some("2026-07-28"));
        assert_eq!(peek(line).name.as_deref(), Some("a://b"));
    }

    #[test]
    fn what_is_no_message_is_nothing() {
        for wrong in ["", "x", "7", "\"a\"", "[]", "[7]", "{", "\u{1}"] {
            assert_eq!(Peek::at(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(Peek::at(b"\xff"), None);
    }
}
