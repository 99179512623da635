//! The backends of a daemon, as `/v1/backends` shows them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Mechanism;

/// One backend, and whether it could run a box now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackendReport {
    pub name: String,
    /// As of the last look, which is never long ago.
    pub available: bool,
    /// A request that names no backend would get this one now.
    pub chosen: bool,
    /// Why it is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What makes it available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Left out for a backend that could not be launched: nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BackendCapabilities>,
    /// What keeps its boxes apart where the host has it all. What one box really has is its
    /// isolation label.
    #[serde(default)]
    pub mechanisms: Vec<Mechanism>,
}

/// What a backend can do at all.
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
    /// Whether a mount may join a box that is running.
    pub live_mounts: bool,
}
