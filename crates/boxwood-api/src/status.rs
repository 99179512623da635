//! The daemon about itself.

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
    /// Running ones only.
    pub managed_processes: u64,
    pub session_ttl_sec: u64,
    /// Boxes that wait for a session of their profile.
    #[serde(default)]
    pub warm_boxes: u64,
    /// Sessions whose programs stand still until somebody uses them.
    #[serde(default)]
    pub frozen_sessions: u64,
}

/// The body of `/healthz`: the daemon answers at all. `name` and `available` are the backend's, as
/// older clients read them.
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
    /// Alive and about to stop.
    Draining,
}

/// The body of `/readyz`: whether the next request has a chance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// What stands in the way, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}
