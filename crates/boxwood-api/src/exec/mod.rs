//! Commands: results, and what is running or has finished recently.

pub(crate) mod stream;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ExecExit, SessionId};

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

/// What stopped a command. JSON: `{"kind": "timeout"}`, `{"kind": "seccomp", "syscall": "mount"}`,
/// `{"kind": "signal", "signal": 9}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The command exceeded its timeout; its process tree was killed.
    Timeout,
    /// The box reached its memory limit.
    Oom,
    /// The box reached its process limit.
    PidsLimit,
    /// A private file system of the box is full, its workspace exceeds the quota, or the host is
    /// low on space.
    DiskQuota,
    /// The output exceeded the kept size.
    OutputLimit,
    /// A system call that is blocked in boxes.
    Seccomp { syscall: String },
    /// A destination that the box may not reach.
    NetworkDenied { host: String },
    /// Killed by a signal for another reason.
    Signal { signal: i32 },
    /// The box died while the command ran.
    BoxGone,
    /// The caller ended it (signal, stop, delete, disconnect).
    Cancelled,
}
