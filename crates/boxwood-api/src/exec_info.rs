//! A command that runs, or ended not long ago, as others than its caller see it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ExecExit, ExecResult, SessionId};

/// The longest `command` of an [`ExecInfo`], in bytes.
pub const MAX_SHOWN_COMMAND_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Running,
    Ended,
}

/// What becomes of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecKind {
    /// Collected for the result.
    Captured,
    /// Sent on while the command runs.
    Live,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecInfo {
    pub session_id: SessionId,
    pub exec_id: u64,
    pub state: ExecState,
    pub kind: ExecKind,
    /// As a shell would be given it. The end of a long one is left out.
    pub command: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// Whether it goes on for a while without a client, and can be followed again.
    pub resumable: bool,
    /// Whether a client follows it now.
    pub attached: bool,
    /// Whether an earlier daemon started it.
    pub adopted: bool,
    /// Written so far.
    pub stdout_bytes: u64,
    /// Written so far.
    pub stderr_bytes: u64,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExecExit>,
}

/// One command with its result, where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecDetail {
    #[serde(flatten)]
    pub info: ExecInfo,
    /// Once it has ended, and for as long as it is remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ExecResult>,
}

/// The answer to a killed command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KilledExec {
    pub killed: u64,
}
