//! The daemon itself: its status, backends, checks of the host, profiles and tokens.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Mechanism, MountMode, Network};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackendInfo {
    pub name: Option<String>,
    pub available: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub backend: BackendInfo,
    pub active_sessions: u64,
    /// Running processes.
    pub managed_processes: u64,
    pub session_ttl_sec: u64,
    /// Prewarmed boxes.
    #[serde(default)]
    pub warm_boxes: u64,
    /// Frozen sessions.
    #[serde(default)]
    pub frozen_sessions: u64,
}

/// The body of `/healthz`. `name` and `available` describe the backend, for older clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Healthz {
    pub status: HealthState,
    pub name: Option<String>,
    pub available: bool,
    pub version: String,
    pub uptime_sec: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    Ok,
    /// Shutting down.
    Draining,
}

/// The body of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// Reasons why it is not ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// One backend and its availability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackendReport {
    pub name: String,
    /// As of the last probe.
    pub available: bool,
    /// True for the backend that a request without `backend` would use now.
    pub chosen: bool,
    /// Why it is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How to make it available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Absent if the backend could not be launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BackendCapabilities>,
    /// The isolation it provides if the host supports everything. The isolation label of a box
    /// shows what is really in force.
    #[serde(default)]
    pub mechanisms: Vec<Mechanism>,
}

/// Optional features of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one yes or no about the backend, and none depends on another"
)]
pub struct BackendCapabilities {
    pub pty: bool,
    pub managed_processes: bool,
    pub files: bool,
    pub network: bool,
    pub host_mounts: bool,
    /// Whether a mount can be added to a running box.
    pub live_mounts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    Works,
    /// Boxes start without it; their isolation label lists it as missing.
    Missing,
    /// No box can start without it.
    Fatal,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorFinding {
    pub name: String,
    /// The mechanism of the isolation label, if the check belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    pub state: FindingState,
    /// What was found, or why it is missing.
    pub detail: String,
    /// Why it matters.
    pub matters: String,
    /// The command or setting that provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    pub backend: String,
    /// Whether boxes can start on this host.
    pub usable: bool,
    pub findings: Vec<DoctorFinding>,
    /// All backends, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendReport>,
    /// Programs on this host that boxes with the host image can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolchains: Vec<ToolchainFinding>,
}

/// A program that most MCP servers need. Boxes start without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolchainFinding {
    pub name: String,
    /// Its path in a box. Absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What needs it.
    pub matters: String,
    /// How to install it, or what to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl DoctorReport {
    pub fn new(backend: &str, findings: Vec<DoctorFinding>) -> Self {
        Self {
            backend: backend.to_owned(),
            usable: findings
                .iter()
                .all(|finding| finding.state != FindingState::Fatal),
            findings,
            backends: Vec::new(),
            toolchains: Vec::new(),
        }
    }

    /// Adds the programs that MCP servers need.
    #[must_use]
    pub fn with_toolchains(self, toolchains: Vec<ToolchainFinding>) -> Self {
        Self { toolchains, ..self }
    }

    /// Adds the reports of all backends.
    #[must_use]
    pub fn with_backends(self, backends: Vec<BackendReport>) -> Self {
        Self { backends, ..self }
    }
}

/// A field that an operator can lock. The value of the profile then replaces the one of the
/// request.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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

/// Name and age of a token, without the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    pub name: String,
    pub created_at: Timestamp,
}
