//! Events of sessions, processes and MCP servers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ImageProgress, McpPhase, McpServerName, ProcessId, Reason, SessionId};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub session_id: SessionId,
    #[serde(flatten)]
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The session waits for an image pull. Sent before `session_created`.
    ImagePull(ImageProgress),
    SessionCreated {
        incarnation: u64,
    },
    SessionDeleted {
        why: String,
    },
    /// The session was idle; its processes are frozen until the next call.
    SessionFrozen,
    SessionThawed {
        /// How long the session was frozen.
        frozen_ms: u64,
    },
    ExecStarted {
        exec_id: u64,
    },
    ExecFinished {
        exec_id: u64,
        exit_code: Option<i32>,
        reason: Option<Reason>,
        duration_ms: u64,
    },
    ProcessStarted {
        process_id: ProcessId,
    },
    ProcessExited {
        process_id: ProcessId,
        exit_code: Option<i32>,
        reason: Option<Reason>,
    },
    /// A hosted MCP server is connected.
    McpConnected {
        name: McpServerName,
    },
    /// A hosted MCP server has failed and will not be restarted automatically.
    McpFailed {
        name: McpServerName,
        phase: Option<McpPhase>,
        message: String,
    },
}
