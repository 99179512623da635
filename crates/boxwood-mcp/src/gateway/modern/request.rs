//! Parses and validates one request of the modern protocol version, or returns the error and HTTP status
//! that the specification requires.

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;

use crate::gateway::error::{INVALID_REQUEST, RpcError, UNSUPPORTED_VERSION, shortened};
use crate::gateway::http::headers::{self, single};
use crate::gateway::http::request::{Accepts, is_json};
use crate::gateway::json::{is_object, raw};
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::params;
use crate::protocol_versions::{
    ACCEPTS_REQUESTS, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, MODERN, VERSION,
};
use crate::wire::{BadMessage, Kind, Message, Object};

const MAX_CLIENT_BYTES: usize = 16 * 1024;

#[derive(Clone)]
pub(crate) struct ModernRequest {
    /// Complete, with unknown fields.
    pub(crate) message: Message,
    pub(crate) id: Box<RawValue>,
    pub(crate) method: String,
    /// Including `_meta`.
    pub(crate) params: Object,
    pub(crate) client_info: Option<Box<RawValue>>,
    pub(crate) capabilities: Object,
    pub(crate) level: Option<LogLevel>,
}

impl ModernRequest {
    pub(crate) fn progress_token(&self) -> Option<Box<RawValue>> {
        self.message.meta()?.remove("progressToken")
    }

    /// Returns true if servers may send requests to this client.
    pub(crate) fn accepts_server_requests(&self) -> bool {
        let offers = |key: &str| self.capabilities.get(key).is_some();
        ACCEPTS_REQUESTS.into_iter().any(offers)
    }
}

/// An invalid request.
pub(crate) struct Rejected {
    pub(crate) id: Option<Box<RawValue>>,
    pub(crate) error: RpcError,
}

/// Returns true for requests of the modern protocol version. For `initialize` only the body decides: legacy
/// clients send it with any header.
pub(crate) fn is_modern(headers: &HeaderMap, body: Option<&Message>) -> bool {
    let meta = body.and_then(Message::meta);
    if meta.is_some_and(|meta| meta.get(VERSION).is_some()) {
        return true;
    }
    let method = body.and_then(Message::method);
    let is_session = headers.contains_key("mcp-session-id");
    let version = headers.get(headers::PROTOCOL_VERSION);
    method != Some("initialize")
        && !is_session
        && version.is_some_and(|version| version.as_bytes() >= MODERN.as_bytes())
}

/// `None` for a notification.
pub(crate) fn read(
    headers: &HeaderMap,
    message: Result<Message, BadMessage>,
) -> Result<Option<ModernRequest>, Box<Rejected>> {
    let early = |error| Box::new(Rejected { id: None, error });
    check_http(headers).map_err(early)?;
    let message = message.map_err(|bad| early(RpcError::unreadable(&bad)))?;
    match message.kind() {
        Kind::Request => {}
        Kind::Notification => return Ok(None),
        Kind::Response => {
            let text =
                "this protocol version has no server requests, so responses are not accepted";
            return Err(early(RpcError::new(INVALID_REQUEST, text)));
        }
    }
    let id = message.id().map(ToOwned::to_owned);
    let checked = message.of_client();
    let request = checked.map_err(|bad| RpcError::unreadable(&bad));
    let request = request.and_then(|message| parse_request(headers, message));
    request
        .map(Some)
        .map_err(|error| Box::new(Rejected { id, error }))
}

fn check_http(headers: &HeaderMap) -> Result<(), RpcError> {
    let refused = |status, text: &str| RpcError::new(INVALID_REQUEST, text).with_status(status);
    if !is_json(headers) {
        let text = "send the body as `Content-Type: application/json`";
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let accepts = Accepts::of(headers);
    if !headers.contains_key(ACCEPT) || !accepts.json || !accepts.events {
        let text = "header `Accept` must include application/json and text/event-stream";
        return Err(refused(StatusCode::NOT_ACCEPTABLE, text));
    }
    Ok(())
}

fn parse_request(headers: &HeaderMap, message: Message) -> Result<ModernRequest, RpcError> {
    let method = message.method().unwrap_or_default().to_owned();
    let params = params::parsed(message.params(), "params")?;
    let meta = params::parsed(params.get("_meta"), "params._meta")?;
    check_version(headers, &meta)?;
    headers::check(headers, &method, &params)?;
    let capabilities = meta
        .get(CLIENT_CAPABILITIES)
        .ok_or_else(|| missing(CLIENT_CAPABILITIES))?;
    let capabilities = small_object(CLIENT_CAPABILITIES, capabilities)?;
    let client_info = match meta.get(CLIENT_INFO) {
        None => None,
        Some(info) => Some(small_object(CLIENT_INFO, info)?.raw()),
    };
    let level = if meta.get(LOG_LEVEL).is_some() {
        let level = meta
            .text(LOG_LEVEL)
            .and_then(|level| LogLevel::parse(&level));
        let text = format!("`{LOG_LEVEL}` must be a level from debug to emergency");
        Some(level.ok_or_else(|| RpcError::malformed(text))?)
    } else {
        None
    };
    let id = message.id().map(ToOwned::to_owned).unwrap_or_default();
    Ok(ModernRequest {
        message,
        id,
        method,
        params,
        client_info,
        capabilities,
        level,
    })
}

fn check_version(headers: &HeaderMap, meta: &Object) -> Result<(), RpcError> {
    let header = single(headers, headers::PROTOCOL_VERSION)?;
    let body = meta.text(VERSION);
    match (header, body.as_deref()) {
        (None, _) => Err(RpcError::header_mismatch(
            "header `MCP-Protocol-Version` is missing",
        )),
        (Some(header), None) if header != MODERN => Err(unsupported(header)),
        (Some(_), None) => Err(missing(VERSION)),
        (Some(header), Some(body)) if header != body => Err(RpcError::header_mismatch(format!(
            "header `MCP-Protocol-Version: {}` does not match `{}` in `_meta`",
            shortened(header),
            shortened(body)
        ))),
        (Some(header), Some(_)) if header != MODERN => Err(unsupported(header)),
        (Some(_), Some(_)) => Ok(()),
    }
}

fn unsupported(requested: &str) -> RpcError {
    RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(raw(
        &json!({ "supported": [MODERN], "requested": shortened(requested) }),
    ))
}

fn missing(key: &str) -> RpcError {
    RpcError::malformed(format!("`params._meta` must have `{key}`"))
}

fn small_object(key: &str, raw: &RawValue) -> Result<Object, RpcError> {
    if !is_object(raw) || raw.get().len() > MAX_CLIENT_BYTES {
        return Err(RpcError::malformed(format!(
            "`{key}` must be an object of at most {MAX_CLIENT_BYTES} bytes"
        )));
    }
    Object::parse(raw.get()).map_err(|bad| RpcError::malformed(format!("invalid `{key}`: {bad}")))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::CONTENT_TYPE;
    use serde_json::Value;

    use super::*;
    use crate::gateway::error::{HEADER_MISMATCH, INVALID_PARAMS, PARSE_ERROR};

    fn posted(version: Option<&str>, method: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers.insert(
            "mcp-method",
            HeaderValue::from_str(method).expect("a method"),
        );
        if let Some(version) = version {
            let version = HeaderValue::from_str(version).expect("a version");
            headers.insert(headers::PROTOCOL_VERSION, version);
        }
        headers
    }

    fn request(meta: &Value) -> Vec<u8> {
        let request =
            json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}});
        request.to_string().into_bytes()
    }

    fn outcome(headers: &HeaderMap, body: &[u8]) -> Result<(), (u16, i64, Option<String>)> {
        match read(headers, Message::parse(body)) {
            Ok(_) => Ok(()),
            Err(rejected) => Err((
                rejected.error.status.as_u16(),
                rejected.error.code,
                rejected.id.map(|id| id.get().to_owned()),
            )),
        }
    }

    #[test]
    fn requests_without_the_required_fields_are_refused() {
        let good = json!({VERSION: MODERN, CLIENT_CAPABILITIES: {}});
        let headers = posted(Some(MODERN), "tools/list");
        let seven = Some("7".to_owned());
        assert_eq!(outcome(&headers, &request(&good)), Ok(()));
        for (meta, code) in [
            (json!({}), INVALID_PARAMS),
            (json!({CLIENT_CAPABILITIES: {}}), INVALID_PARAMS),
            (json!({VERSION: MODERN}), INVALID_PARAMS),
            (
                json!({VERSION: MODERN, CLIENT_CAPABILITIES: []}),
                INVALID_PARAMS,
            ),
            (
                json!({VERSION: MODERN, CLIENT_CAPABILITIES: {}, LOG_LEVEL: "loud"}),
                INVALID_PARAMS,
            ),
            (
                json!({VERSION: "v999", CLIENT_CAPABILITIES: {}}),
                HEADER_MISMATCH,
            ),
        ] {
            assert_eq!(
                outcome(&headers, &request(&meta)),
                Err((400, code, seven.clone())),
                "{meta}"
            );
        }
        let unknown = posted(Some("v999"), "tools/list");
        let meta = json!({VERSION: "v999", CLIENT_CAPABILITIES: {}});
        assert_eq!(
            outcome(&unknown, &request(&meta)),
            Err((400, UNSUPPORTED_VERSION, seven.clone()))
        );
        let without = posted(None, "tools/list");
        assert_eq!(
            outcome(&without, &request(&good)),
            Err((400, HEADER_MISMATCH, seven.clone()))
        );
        let other = posted(Some(MODERN), "tools/call");
        assert_eq!(
            outcome(&other, &request(&good)),
            Err((400, HEADER_MISMATCH, seven))
        );
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let headers = posted(Some(MODERN), "tools/list");
        let good = request(&json!({VERSION: MODERN, CLIENT_CAPABILITIES: {}}));
        let good = String::from_utf8(good).expect("UTF-8");
        let odd = good.replacen('{', r#"{"Method":"tools/call","#, 1);
        let refused = Err((400, INVALID_REQUEST, Some("7".to_owned())));
        assert_eq!(outcome(&headers, odd.as_bytes()), refused);
    }

    #[test]
    fn notifications_and_responses_are_not_requests() {
        let headers = posted(Some(MODERN), "tools/list");
        assert_eq!(outcome(&headers, b"{"), Err((400, PARSE_ERROR, None)));
        assert_eq!(outcome(&headers, b"[]"), Err((400, INVALID_REQUEST, None)));
        let response = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(
            outcome(&headers, response),
            Err((400, INVALID_REQUEST, None))
        );
        let notification = br#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
        assert_eq!(outcome(&headers, notification), Ok(()));
        let mut plain = headers.clone();
        plain.insert(ACCEPT, HeaderValue::from_static("application/json"));
        assert_eq!(outcome(&plain, b"{}"), Err((406, INVALID_REQUEST, None)));
    }

    #[test]
    fn the_protocol_version_is_in_header_or_body() {
        let parse = |body: &[u8]| Message::parse(body).expect("a message");
        let modern = posted(Some(MODERN), "x");
        let legacy = posted(Some("2025-11-25"), "x");
        let initialize = parse(br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
        let list = parse(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        let body = parse(&request(&json!({VERSION: MODERN})));
        assert!(is_modern(&modern, Some(&list)) && is_modern(&legacy, Some(&body)));
        assert!(is_modern(&posted(Some("v999"), "x"), Some(&list)));
        assert!(!is_modern(&modern, Some(&initialize)) && !is_modern(&legacy, Some(&list)));
        assert!(!is_modern(&posted(None, "x"), Some(&list)));
        let mut session = modern.clone();
        session.insert("mcp-session-id", HeaderValue::from_static("s"));
        assert!(!is_modern(&session, Some(&list)));
    }
}
