//! JSON-RPC errors of the gateway, with their HTTP status.

use boxwood_api::{McpPhase, McpServerName};
use http::StatusCode;
use serde_json::json;
use serde_json::value::RawValue;

use crate::gateway::json::raw;
use crate::gateway::notifications::preferences::{
    MAX_SUBSCRIPTIONS, MAX_TOTAL_URI_BYTES, MAX_URI_BYTES,
};
use crate::hosting::HostingError;
use crate::wire::{BadMessage, CallError, Message, Object};

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const MISSING_CLIENT_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// Only in legacy versions.
pub(crate) const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;

#[derive(Clone, Debug)]
pub(crate) struct RpcError {
    pub(crate) status: StatusCode,
    pub(crate) code: i64,
    pub(crate) message: String,
    /// Raw, because data from a server may be large.
    pub(crate) data: Option<Box<RawValue>>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            status: status_of(code),
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// A malformed request. It is not sent to any server.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message).with_status(StatusCode::BAD_REQUEST)
    }

    /// A body that is not a message.
    pub(crate) fn unreadable(bad: &BadMessage) -> Self {
        Self::new(bad.code(), bad.to_string())
    }

    pub(crate) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(HEADER_MISMATCH, message)
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        let text = format!("method not found: `{}`", shortened(method));
        Self::new(METHOD_NOT_FOUND, text)
    }

    /// The text that the SDKs use, so that a filtered tool looks like a missing one.
    pub(crate) fn unknown_tool(name: &str) -> Self {
        Self::new(INVALID_PARAMS, format!("Unknown tool: {}", shortened(name)))
    }

    pub(crate) fn too_many_subscriptions() -> Self {
        let text = format!(
            "a client has at most {MAX_SUBSCRIPTIONS} subscriptions, with URIs of at most {MAX_URI_BYTES} bytes each and {MAX_TOTAL_URI_BYTES} in total; unsubscribe from some"
        );
        Self::new(INVALID_PARAMS, text)
    }

    pub(crate) fn with_data(self, data: Box<RawValue>) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }

    pub(crate) fn message(&self, id: Option<&RawValue>) -> Message {
        let id = id.map(ToOwned::to_owned);
        Message::failure(id, self.code, &self.message, self.data.clone())
    }
}

/// The beginning of a text of a client or a server, for an error message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(120).collect()
}

/// HTTP status of an error in the modern protocol version.
pub(crate) fn status_of(code: i64) -> StatusCode {
    match code {
        METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        HEADER_MISMATCH
        | MISSING_CLIENT_CAPABILITY
        | UNSUPPORTED_VERSION
        | INVALID_REQUEST
        | PARSE_ERROR => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

impl From<HostingError> for RpcError {
    fn from(error: HostingError) -> Self {
        let status = match &error {
            HostingError::NotFound { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        let mut data = Object::default();
        if let Some(phase) = error.phase() {
            data.set("phase", raw(phase.as_str()));
        }
        if let Some(hint) = error.hint() {
            data.set("hint", raw(&hint));
        }
        Self {
            status,
            data: (!data.is_empty()).then(|| data.raw()),
            ..Self::new(INTERNAL_ERROR, error.to_string())
        }
    }
}

impl RpcError {
    /// A call that this server did not answer.
    pub(crate) fn call_failed(error: &CallError, server: &McpServerName) -> Self {
        let phase = match error {
            CallError::BadParams(_) => return Self::malformed(error.to_string()),
            CallError::TimedOut { .. } => McpPhase::ToolCall,
            _ => McpPhase::Runtime,
        };
        Self::new(INTERNAL_ERROR, error.to_string()).with_data(raw(&json!({
            "phase": phase.as_str(),
            "server": server.as_str(),
            "hint": format!("see `boxwood mcp logs {server}`"),
        })))
    }
}
