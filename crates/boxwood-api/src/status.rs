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
}
