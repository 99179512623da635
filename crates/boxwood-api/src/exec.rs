//! The answer to one command.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Reason, SessionId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecStatus {
    Completed,
    TimedOut,
}

/// How much of a stream was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamCapture {
    /// All bytes the command wrote.
    pub total_bytes: u64,
    /// Bytes left out between the kept head and the kept tail.
    pub dropped_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecResult {
    pub session_id: SessionId,
    pub backend_name: String,
    pub status: ExecStatus,
    /// 128+n for death by signal n; null when the command timed out.
    pub exit_code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub stdout_capture: StreamCapture,
    pub stderr_capture: StreamCapture,
    /// What the profile changed about the request, in words (a clamped timeout, say).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}
