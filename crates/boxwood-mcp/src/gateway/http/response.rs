//! HTTP responses that are not streams.

use bytes::Bytes;
use http::header;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::value::RawValue;

use crate::agent_server::Answer;
use crate::gateway::error::{INVALID_REQUEST, RpcError};

pub(crate) const JSON: &str = "application/json";

/// The code that the SDKs use.
const SESSION_NOT_FOUND: i64 = -32001;
const TOO_MANY_SESSIONS: i64 = -32000;

pub(crate) fn bodiless(status: StatusCode) -> Answer {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

pub(crate) fn json(status: StatusCode, bytes: Bytes) -> Answer {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(JSON);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(crate) fn refused(error: &RpcError, id: Option<&RawValue>) -> Answer {
    let mut answer = json(error.status, error.message(id).json());
    if error.status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_static("POST");
        answer.headers_mut().insert(header::ALLOW, allowed);
    }
    answer
}

pub(crate) fn refuse(status: StatusCode, text: &str) -> Answer {
    let error = RpcError::new(INVALID_REQUEST, text);
    refused(&error.with_status(status), None)
}

pub(crate) fn too_large(max_bytes: usize) -> Answer {
    let text = format!("request body exceeds {max_bytes} bytes");
    refuse(StatusCode::PAYLOAD_TOO_LARGE, &text)
}

pub(crate) fn method_not_allowed(methods: &'static str) -> Answer {
    let mut answer = refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        "HTTP method not allowed on an MCP endpoint",
    );
    let allow = HeaderValue::from_static(methods);
    answer.headers_mut().insert(header::ALLOW, allow);
    answer
}

/// The same for a missing session and for one of another principal.
pub(crate) fn no_session() -> Answer {
    let text = "session not found; start a new one with `initialize`";
    let error = RpcError::new(SESSION_NOT_FOUND, text);
    refused(&error.with_status(StatusCode::NOT_FOUND), None)
}

pub(crate) fn full() -> Answer {
    let error = RpcError::new(
        TOO_MANY_SESSIONS,
        "too many active MCP sessions; try again later",
    );
    let mut answer = refused(&error.with_status(StatusCode::SERVICE_UNAVAILABLE), None);
    let retry_after = HeaderValue::from_static("5");
    answer
        .headers_mut()
        .insert(header::RETRY_AFTER, retry_after);
    answer
}
