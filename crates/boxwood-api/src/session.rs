//! Sessions in API responses, and events of sessions, processes and MCP servers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    ExecInfo, ImageProgress, IsolationLabel, McpPhase, McpServerName, MountMode, MountSpec,
    Network, ProcessId, ProcessInfo, Reason, SessionId,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    pub session_id: SessionId,
    pub backend_name: String,
    pub backend_session_id: String,
    /// Increases with every box created for this id, so that stale handles can be detected.
    pub incarnation: u64,
    pub profile: String,
    pub image: String,
    pub network: Network,
    pub host_path: Option<String>,
    pub host_path_mode: MountMode,
    pub mount_path: String,
    pub extra_mounts: Vec<MountSpec>,
    pub persistent: bool,
    pub cpus: f64,
    pub memory_mb: u64,
    pub pids_limit: u64,
    pub read_only_rootfs: bool,
    pub workspace_quota_mb: u64,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    /// When this daemon adopted the box from a previous one. Absent if it created the box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_at: Option<Timestamp>,
    /// Frozen because it was idle; the next call thaws it.
    #[serde(default)]
    pub frozen: bool,
    pub isolation: IsolationLabel,
}

/// One session with its managed processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionDetail {
    #[serde(flatten)]
    pub session: SessionInfo,
    /// Hash of the box's configuration: boxes with the same hash are configured alike.
    #[serde(default)]
    pub config_hash: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::HashMap<String, ProcessInfo>)]
    pub managed_processes: BTreeMap<ProcessId, ProcessInfo>,
    /// The process `default`, for callers that use a single process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_process: Option<ProcessInfo>,
    /// Running commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execs: Vec<ExecInfo>,
}

/// The response for a deleted session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedSession {
    pub deleted: SessionId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
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
