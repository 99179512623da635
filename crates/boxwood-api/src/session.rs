//! A session as its caller sees it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    ExecInfo, IsolationLabel, MountMode, MountSpec, Network, ProcessId, ProcessInfo, SessionId,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    pub session_id: SessionId,
    pub backend_name: String,
    pub backend_session_id: String,
    /// Counts up with every box made under this id, so that a stale handle can be told apart.
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
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_used_at: Timestamp,
    /// When this daemon took the box over from an earlier one; absent where it made the box itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub adopted_at: Option<Timestamp>,
    /// Stopped where it stands because nobody used it; the next call wakes it.
    #[serde(default)]
    pub frozen: bool,
    pub isolation: IsolationLabel,
}

/// One session with its managed processes, where it has any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionDetail {
    #[serde(flatten)]
    pub session: SessionInfo,
    /// Of everything that makes the box what it is: two boxes with the same one are alike.
    #[serde(default)]
    pub config_hash: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::HashMap<String, ProcessInfo>)]
    pub managed_processes: BTreeMap<ProcessId, ProcessInfo>,
    /// The process called `default`, as callers that know only one process expect it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_process: Option<ProcessInfo>,
    /// Commands that run now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execs: Vec<ExecInfo>,
}

/// The answer to a deleted session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedSession {
    pub deleted: SessionId,
}
