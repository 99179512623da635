//! Stable error codes. Clients branch on these; the messages are for people.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::McpPhase;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    ValidationError,
    SessionNotFound,
    ManagedProcessNotFound,
    SessionConflict,
    ManagedProcessConflict,
    BackendUnavailable,
    InternalError,
    Capacity,
    SessionGone,
    ImageNotFound,
    Unauthorized,
    Forbidden,
    PayloadTooLarge,
    NotFound,
    Timeout,
    /// The requested output is no longer kept.
    ReplayGone,
}

impl ErrorCode {
    pub const ALL: [Self; 16] = [
        Self::ValidationError,
        Self::SessionNotFound,
        Self::ManagedProcessNotFound,
        Self::SessionConflict,
        Self::ManagedProcessConflict,
        Self::BackendUnavailable,
        Self::InternalError,
        Self::Capacity,
        Self::SessionGone,
        Self::ImageNotFound,
        Self::Unauthorized,
        Self::Forbidden,
        Self::PayloadTooLarge,
        Self::NotFound,
        Self::Timeout,
        Self::ReplayGone,
    ];

    /// The code as used in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ValidationError => "validation_error",
            Self::SessionNotFound => "session_not_found",
            Self::ManagedProcessNotFound => "managed_process_not_found",
            Self::SessionConflict => "session_conflict",
            Self::ManagedProcessConflict => "managed_process_conflict",
            Self::BackendUnavailable => "backend_unavailable",
            Self::InternalError => "internal_error",
            Self::Capacity => "capacity",
            Self::SessionGone => "session_gone",
            Self::ImageNotFound => "image_not_found",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::PayloadTooLarge => "payload_too_large",
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::ReplayGone => "replay_gone",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ErrorBody {
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: Option<String>) -> Self {
        Self {
            error: ErrorDetail {
                code,
                message: message.into(),
                hint,
            },
        }
    }
}

/// The body of every failed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// The body of a failed request about a hosted MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpErrorBody {
    pub error: McpErrorDetail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpErrorDetail {
    #[serde(flatten)]
    pub error: ErrorDetail,
    /// The phase in which the server failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<McpPhase>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    pub code: ErrorCode,
    pub message: String,
    /// What the caller can do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
