//! Stable error codes. Clients branch on these; the messages are for people.

use std::error::Error;

use serde::{Deserialize, Serialize};
use strum::{EnumCount, VariantArray};
use utoipa::ToSchema;

use crate::McpPhase;

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    strum::Display,
    strum::IntoStaticStr,
    EnumCount,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    pub const ALL: [Self; Self::COUNT] = *Self::VARIANTS.first_chunk().unwrap();

    /// The code as used in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
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

/// The error and its causes on one line. The last one is often an error of the kernel, which the reader may be able
/// to fix.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some texts contain that of their source.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
