//! Status of the daemon.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
