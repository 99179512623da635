//! The result of one command.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Reason, SessionId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecStatus {
    Completed,
    TimedOut,
}

/// How much of an output stream was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamCapture {
    /// Total bytes that the command wrote.
    pub total_bytes: u64,
    /// Bytes omitted between the kept head and the kept tail.
    pub dropped_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecResult {
    pub session_id: SessionId,
    pub backend_name: String,
    pub status: ExecStatus,
    /// 128+n if killed by signal n; null if the command timed out.
    pub exit_code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub stdout_capture: StreamCapture,
    pub stderr_capture: StreamCapture,
    /// Changes that the profile made to the request, such as a reduced timeout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}
