//! Running and recently finished commands.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ExecExit, ExecResult, SessionId};

/// Maximum length of `command` in an [`ExecInfo`], in bytes.
pub const MAX_SHOWN_COMMAND_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Running,
    Ended,
}

/// How the output is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecKind {
    /// Captured for the result.
    Captured,
    /// Streamed while the command runs.
    Live,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecInfo {
    pub session_id: SessionId,
    pub exec_id: u64,
    pub state: ExecState,
    pub kind: ExecKind,
    /// The command line. Truncated if it is long.
    pub command: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// Whether it keeps running without a client and can be resumed.
    pub resumable: bool,
    /// Whether a client is attached.
    pub attached: bool,
    /// Whether it was started by a previous daemon.
    pub adopted: bool,
    /// Bytes written so far.
    pub stdout_bytes: u64,
    /// Bytes written so far.
    pub stderr_bytes: u64,
    /// The exit status, once it has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExecExit>,
}

/// One command with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecDetail {
    #[serde(flatten)]
    pub info: ExecInfo,
    /// Present after it has finished, as long as it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ExecResult>,
}

/// The response for a killed command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KilledExec {
    pub killed: u64,
}
