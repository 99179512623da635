//! What happened, for whoever watches.

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
    /// The session waits for an image that is being fetched. Comes before `session_created`.
    ImagePull(ImageProgress),
    SessionCreated {
        incarnation: u64,
    },
    SessionDeleted {
        why: String,
    },
    /// Nobody used it for a while: its programs stand still until somebody does.
    SessionFrozen,
    SessionThawed {
        /// How long they stood still.
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
    /// A hosted MCP server is there for its clients.
    McpConnected {
        name: McpServerName,
    },
    /// A hosted MCP server is not there, and will not be without help.
    McpFailed {
        name: McpServerName,
        phase: Option<McpPhase>,
        message: String,
    },
}
