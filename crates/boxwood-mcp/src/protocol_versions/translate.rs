//! Translates parameters, results and errors between legacy and modern protocol versions. Other fields stay
//! unchanged.

use serde_json::json;
use serde_json::value::RawValue;

use crate::gateway::error::{INVALID_PARAMS, LEGACY_RESOURCE_NOT_FOUND, RpcError};
use crate::gateway::json::{object, raw};
use crate::protocol_versions::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LEGACY, LOG_LEVEL, MODERN, NEWEST_LEGACY, OLDEST,
    SERVER_INFO, VERSION,
};
use crate::wire::{Handshake, Message, Object, Protocol};

/// The capability of a modern method. `None` for methods that legacy servers do not have.
fn capability(method: &str) -> Option<&'static str> {
    match method {
        "tools/list" | "tools/call" => Some("tools"),
        "prompts/list" | "prompts/get" => Some("prompts"),
        "resources/list" | "resources/templates/list" | "resources/read" => Some("resources"),
        "completion/complete" => Some("completions"),
        _ => None,
    }
}

/// Returns true if a legacy server offers the method.
pub(crate) fn is_offered(method: &str, handshake: &Handshake) -> bool {
    // Version 2024-11-05 had completion without a capability.
    let needs_no_capability =
        method == "completion/complete" && handshake.protocol_version == OLDEST;
    capability(method).is_some_and(|name| needs_no_capability || handshake.has(name))
}

/// Methods that the modern protocol version removed. Servers that support both may still implement them.
pub(crate) fn is_removed(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "ping"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "roots/list"
            | "sampling/createMessage"
            | "elicitation/create"
    )
}

/// Returns true if a modern server may respond with a request for input of the client.
pub(crate) fn may_need_input(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

fn is_cacheable(method: &str) -> bool {
    method.ends_with("/list") || matches!(method, "resources/read" | "server/discover")
}

/// Parameters for a legacy server.
pub(crate) fn legacy_params(params: &Object) -> Option<Box<RawValue>> {
    let mut params = params.clone();
    params.remove("inputResponses");
    params.remove("requestState");
    if let Some(mut meta) = params.get("_meta").and_then(object) {
        for key in [VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL] {
            meta.remove(key);
        }
        if meta.is_empty() {
            params.remove("_meta");
        } else {
            params.set("_meta", meta.raw());
        }
    }
    (!params.is_empty()).then(|| params.raw())
}

/// The response of a legacy server, or of all servers, for a modern client.
pub(crate) fn modern_answer(
    method: &str,
    answer: Message,
    server_info: Option<&RawValue>,
) -> Result<Message, RpcError> {
    let Some(result) = answer.outcome() else {
        return modern_error(answer);
    };
    let Some(mut result) = object(result) else {
        return Ok(answer);
    };
    result.set_default("resultType", raw("complete"));
    if is_cacheable(method) {
        cacheable(&mut result);
    }
    identify(&mut result, server_info);
    Ok(answer.with_result(result.raw()))
}

/// Adds the cache fields if they are missing. The lifetime is unknown, so the result must not be cached.
fn cacheable(result: &mut Object) {
    result.set_default("ttlMs", raw(&0));
    result.set_default("cacheScope", raw("private"));
}

fn identify(result: &mut Object, server_info: Option<&RawValue>) {
    let Some(info) = server_info else {
        return;
    };
    let mut meta = match result.get("_meta") {
        None => Object::default(),
        Some(meta) => match object(meta) {
            Some(meta) => meta,
            None => return,
        },
    };
    meta.set_default(SERVER_INFO, info.to_owned());
    result.set("_meta", meta.raw());
}

/// Translates the code of an error. Only one code differs between the versions.
fn modern_error(answer: Message) -> Result<Message, RpcError> {
    match answer.error_parts() {
        Some((LEGACY_RESOURCE_NOT_FOUND, text)) => {
            let error = answer.error().and_then(object);
            let data = error.and_then(|mut error| error.remove("data"));
            let error = RpcError::new(INVALID_PARAMS, text);
            Err(RpcError { data, ..error })
        }
        _ => Ok(answer),
    }
}

/// The result of `server/discover` for a legacy server.
pub(crate) fn discovered(handshake: &Handshake) -> Box<RawValue> {
    let mut capabilities = object(&handshake.capabilities).unwrap_or_default();
    // Legacy tasks have another interface.
    capabilities.remove("tasks");
    let instructions = handshake.instructions.as_deref();
    discovery(
        capabilities.raw(),
        instructions,
        handshake.server_info.as_deref(),
    )
}

pub(crate) fn discovery(
    capabilities: Box<RawValue>,
    instructions: Option<&str>,
    server_info: Option<&RawValue>,
) -> Box<RawValue> {
    let versions: Vec<&str> = [MODERN].into_iter().chain(LEGACY).collect();
    let mut result = Object::of([
        ("resultType", raw("complete")),
        ("supportedVersions", raw(&versions)),
        ("capabilities", capabilities),
    ]);
    if let Some(instructions) = instructions {
        result.set("instructions", raw(instructions));
    }
    cacheable(&mut result);
    identify(&mut result, server_info);
    result.raw()
}

/// The result of `initialize` for any server.
pub(crate) fn initialized(handshake: &Handshake) -> Box<RawValue> {
    if handshake.protocol == Protocol::Legacy {
        return handshake.result.clone();
    }
    let mut capabilities = object(&handshake.capabilities).unwrap_or_default();
    capabilities.remove("extensions");
    // In the modern version the log level is set per request and notifications have a stream of their own,
    // so they cannot be offered in a session.
    capabilities.remove("logging");
    for key in ["tools", "prompts", "resources"] {
        if let Some(mut named) = capabilities.get(key).and_then(object) {
            named.remove("listChanged");
            named.remove("subscribe");
            capabilities.set(key, named.raw());
        }
    }
    let server_info = handshake.server_info.clone();
    let mut result = Object::of([
        ("protocolVersion", raw(NEWEST_LEGACY)),
        ("capabilities", capabilities.raw()),
        ("serverInfo", server_info.unwrap_or_else(nameless)),
    ]);
    if let Some(instructions) = &handshake.instructions {
        result.set("instructions", raw(instructions));
    }
    result.raw()
}

/// Name of a client or a server that has not sent one.
pub(crate) fn nameless() -> Box<RawValue> {
    raw(&json!({ "name": "unknown", "version": "0" }))
}

/// Returns true if a modern server has requested input of the client instead of a result.
pub(crate) fn requires_input(answer: &Message) -> bool {
    let result = answer.outcome();
    // Avoids parsing long results.
    let result = result.filter(|result| result.get().contains("input_required"));
    let kind = result
        .and_then(object)
        .and_then(|result| result.text("resultType"));
    kind.as_deref() == Some("input_required")
}

/// Parameters of a legacy client for a modern server, without capabilities of the client.
pub(crate) fn modern_params(params: Option<&RawValue>, client_info: &RawValue) -> Option<Object> {
    let mut params = match params {
        None => Object::default(),
        Some(params) => object(params)?,
    };
    let mut meta = match params.get("_meta") {
        None => Object::default(),
        Some(meta) => object(meta)?,
    };
    meta.set(VERSION, raw(MODERN));
    meta.set(CLIENT_CAPABILITIES, Object::default().raw());
    meta.set(CLIENT_INFO, client_info.to_owned());
    params.set("_meta", meta.raw());
    Some(params)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn legacy() -> Handshake {
        Handshake {
            protocol: Protocol::Legacy,
            protocol_version: "2025-06-18".to_owned(),
            result: raw(&json!({})),
            capabilities: raw(&json!({"tools": {"listChanged": true}, "tasks": {}})),
            server_info: Some(raw(&json!({"name": "old", "version": "1"}))),
            instructions: Some("be kind".to_owned()),
        }
    }

    fn value(raw: &RawValue) -> Value {
        serde_json::from_str(raw.get()).expect("JSON")
    }

    fn parsed(value: &Value) -> Object {
        Object::parse(&value.to_string()).expect("an object")
    }

    #[test]
    fn a_legacy_server_answers_discovery() {
        assert_eq!(
            value(&discovered(&legacy())),
            json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
                "capabilities": {"tools": {"listChanged": true}},
                "instructions": "be kind",
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {SERVER_INFO: {"name": "old", "version": "1"}},
            })
        );
    }

    #[test]
    fn modern_parameters_are_removed_for_legacy_servers() {
        let params = parsed(&json!({
            "name": "echo", "inputResponses": {}, "requestState": "s", "future": [1],
            "_meta": {VERSION: MODERN, CLIENT_CAPABILITIES: {}, "progressToken": 3, "traceparent": "t"}
        }));
        let remaining = legacy_params(&params).expect("something is left");
        assert_eq!(
            value(&remaining),
            json!({"name": "echo", "future": [1], "_meta": {"progressToken": 3, "traceparent": "t"}})
        );
        assert!(legacy_params(&parsed(&json!({"_meta": {VERSION: MODERN}}))).is_none());
    }

    #[test]
    fn results_get_the_fields_of_the_modern_version() {
        let id = || raw(&1);
        let answer = Message::result(
            id(),
            raw(&json!({"tools": [], "new": 1.0, "_meta": {"a": 1}})),
        );
        let translated = modern_answer("tools/list", answer, legacy().server_info.as_deref());
        let translated = translated.expect("a result");
        assert_eq!(
            value(translated.outcome().expect("a result")),
            json!({
                "tools": [], "new": 1.0, "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "_meta": {"a": 1, SERVER_INFO: {"name": "old", "version": "1"}},
            })
        );
        let call = Message::result(id(), raw(&json!({"content": []})));
        let call =
            modern_answer("tools/call", call, legacy().server_info.as_deref()).expect("a result");
        let call = value(call.outcome().expect("a result"));
        assert!(call.get("ttlMs").is_none() && call["resultType"] == "complete");
    }

    #[test]
    fn legacy_error_codes_become_modern_ones() {
        let data = RawValue::from_string(r#"{"uri":  "x:y", "n": 1.50}"#.to_owned());
        let data = data.expect("JSON");
        let error = Message::failure(Some(raw(&1)), -32002, "gone", Some(data.clone()));
        let error = modern_answer("resources/read", error, legacy().server_info.as_deref());
        let error = error.expect_err("an error");
        assert_eq!(error.code, INVALID_PARAMS);
        let translated_data = error.data.map(|data| data.get().to_owned());
        assert_eq!(
            translated_data.as_deref(),
            Some(data.get()),
            "as it was written"
        );
    }

    #[test]
    fn a_modern_server_has_an_initialize_result() {
        let handshake = Handshake {
            protocol: Protocol::Modern,
            result: raw(&json!({"supportedVersions": [MODERN]})),
            capabilities: raw(
                &json!({"tools": {"listChanged": true}, "logging": {}, "extensions": {"x/y": {}}}),
            ),
            ..legacy()
        };
        assert_eq!(
            value(&initialized(&handshake)),
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
                "instructions": "be kind",
            })
        );
    }
}
