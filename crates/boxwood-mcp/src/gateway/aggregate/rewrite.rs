//! Rewrites names and URIs in list items, results and notifications of one server to aggregate names.
//! Everything else stays unchanged.

use boxwood_api::McpServerName;
use serde_json::value::RawValue;

use crate::gateway::aggregate::lists::Kind;
use crate::gateway::aggregate::names::{aggregate_name, aggregate_uri};
use crate::gateway::json::{items, object, raw};
use crate::wire::{Message, Object};

/// Returns the aggregate name and the rewritten item.
pub(crate) fn rewrite_item(
    server: &McpServerName,
    kind: Kind,
    item: &RawValue,
) -> Option<(String, Box<RawValue>)> {
    let mut item = object(item)?;
    let original = item.text(kind.name_key())?;
    let name = match kind {
        Kind::Tools | Kind::Prompts => aggregate_name(server, &original),
        Kind::Resources | Kind::Templates => aggregate_uri(server, &original),
    };
    item.set(kind.name_key(), raw(&name));
    Some((name, item.raw()))
}

/// Rewrites the URIs in a result.
pub(crate) fn rewrite_result(server: &McpServerName, method: &str, answer: Message) -> Message {
    let Some(result) = answer.outcome() else {
        return answer;
    };
    let rewritten = match method {
        "resources/read" => rewritten(result, "contents", |part| with_uri(server, part, "uri")),
        "tools/call" => rewritten(result, "content", |part| rewrite_content(server, part)),
        "prompts/get" => rewritten(result, "messages", |message| {
            let content = message.get("content").and_then(object);
            let content = content.and_then(|mut content| {
                rewrite_content(server, &mut content).then(|| content.raw())
            });
            content.is_some_and(|content| {
                message.set("content", content);
                true
            })
        }),
        _ => None,
    };
    match rewritten {
        Some(result) => answer.with_result(result),
        None => answer,
    }
}

/// `None` if nothing was rewritten.
fn rewritten(
    result: &RawValue,
    key: &str,
    rewrite: impl Fn(&mut Object) -> bool,
) -> Option<Box<RawValue>> {
    // Avoids parsing results without URIs.
    if !result.get().contains("uri") && !result.get().contains("\\u") {
        return None;
    }
    let mut result = object(result)?;
    let mut is_changed = false;
    let parts = items(result.get(key)?)?.into_iter().map(|part| {
        let Some(mut fields) = object(part) else {
            return part.to_owned();
        };
        if rewrite(&mut fields) {
            is_changed = true;
            fields.raw()
        } else {
            part.to_owned()
        }
    });
    let parts: Vec<Box<RawValue>> = parts.collect();
    is_changed.then(|| {
        result.set(key, raw(&parts));
        result.raw()
    })
}

fn rewrite_content(server: &McpServerName, content: &mut Object) -> bool {
    match content.text("type").as_deref() {
        Some("resource_link") => with_uri(server, content, "uri"),
        Some("resource") => {
            let Some(mut resource) = content.get("resource").and_then(object) else {
                return false;
            };
            let is_changed = with_uri(server, &mut resource, "uri");
            content.set("resource", resource.raw());
            is_changed
        }
        _ => false,
    }
}

fn with_uri(server: &McpServerName, object: &mut Object, key: &str) -> bool {
    let Some(original) = object.text(key) else {
        return false;
    };
    object.set(key, raw(&aggregate_uri(server, &original)));
    true
}

/// Rewrites the URI in `notifications/resources/updated`.
pub(crate) fn rewrite_notification(server: &McpServerName, message: &Message) -> Message {
    if message.method() != Some("notifications/resources/updated") {
        return message.clone();
    }
    let params = message.params().and_then(object);
    let params =
        params.and_then(|mut params| with_uri(server, &mut params, "uri").then(|| params.raw()));
    match params {
        Some(params) => message.clone().with_params(Some(params)),
        None => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(name: &str) -> McpServerName {
        McpServerName::new(name).expect("a legal name")
    }

    fn value(message: &Message) -> Value {
        serde_json::from_str(message.outcome().expect("a result").get()).expect("JSON")
    }

    #[test]
    fn uris_in_results_are_rewritten() {
        let server = named("files");
        let answer = |result: Value| Message::result(raw(&1), raw(&result));
        let call = answer(json!({"content": [
            {"type": "text", "text": "uri"},
            {"type": "resource_link", "uri": "file:///a", "x": 1},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "t"}},
        ], "structuredContent": {"uri": "kept"}}));
        assert_eq!(
            value(&rewrite_result(&server, "tools/call", call)),
            json!({"content": [
                {"type": "text", "text": "uri"},
                {"type": "resource_link", "uri": "mcp://files/file:///a", "x": 1},
                {"type": "resource", "resource": {"uri": "mcp://files/file:///b", "text": "t"}},
            ], "structuredContent": {"uri": "kept"}})
        );
        let read = answer(json!({"contents": [{"uri": "file:///a", "text": ""}]}));
        let read = value(&rewrite_result(&server, "resources/read", read));
        assert_eq!(read["contents"][0]["uri"], "mcp://files/file:///a");
        let prompt = json!({"messages": [
            {"role": "user", "content": {"type": "resource", "resource": {"uri": "a:b"}}}
        ]});
        let prompt = value(&rewrite_result(&server, "prompts/get", answer(prompt)));
        assert_eq!(
            prompt["messages"][0]["content"]["resource"]["uri"],
            "mcp://files/a:b"
        );
    }

    #[test]
    fn resource_notifications_are_rewritten() {
        let server = named("memo");
        let notification = br#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"x":1.50,"uri":"memo://a"},"y":2}"#;
        let notification = Message::parse(notification).expect("a message");
        let shown = rewrite_notification(&server, &notification).json();
        assert_eq!(
            String::from_utf8_lossy(&shown),
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"x":1.50,"uri":"mcp://memo/memo://a"},"y":2}"#
        );
    }
}
