//! How a relay is refused in LangBot's words.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_session::SessionError;
use serde_json::json;

use super::Fault;

/// Whether whoever attaches is an MCP client, as LangBot's are.
pub(crate) fn asks_for_mcp(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim() == "mcp")
}

pub(crate) fn refused(error: SessionError) -> Response {
    refused_with(&Fault::from(error))
}

/// Always the same status; the class says what it was.
pub(super) fn refused_with(fault: &Fault) -> Response {
    let body = json!({ "error": { "code": fault.class(), "message": fault.message() } });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
