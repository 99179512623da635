//! Profiles in API responses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Mechanism, MountMode, Network};

/// A field that an operator can lock. The value of the profile then replaces the one of the
/// request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LockableField {
    Image,
    Network,
    TimeoutSec,
    HostPathMode,
    Cpus,
    MemoryMb,
    PidsLimit,
    ReadOnlyRootfs,
    WorkspaceQuotaMb,
    Backend,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProfileInfo {
    pub name: String,
    pub image: String,
    pub network: Network,
    pub host_path_mode: MountMode,
    pub timeout_sec: u64,
    pub max_timeout_sec: u64,
    pub cpus: f64,
    pub memory_mb: u64,
    pub pids_limit: u64,
    pub read_only_rootfs: bool,
    pub workspace_quota_mb: u64,
    /// Size of the private `/tmp`.
    #[serde(default)]
    pub tmp_mb: u64,
    /// `box` or `root`: the user that runs commands inside the box.
    #[serde(default)]
    pub user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pids_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_workspace_quota_mb: Option<u64>,
    /// The backend for boxes of this profile. Absent: the daemon's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    pub locked: Vec<LockableField>,
    pub require: Vec<Mechanism>,
    /// Maximum number of prewarmed boxes.
    #[serde(default)]
    pub warm: u64,
    /// Idle time before a box is frozen; 0 disables it. Absent: the daemon's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze_after_sec: Option<u64>,
}
