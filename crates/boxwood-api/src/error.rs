//! Stable error codes. Clients branch on these; the text beside them is for people.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
}

/// The body of every failed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    pub code: ErrorCode,
    pub message: String,
    /// What the caller can do next, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
