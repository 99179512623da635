//! The backends of a daemon, as listed by `/v1/backends`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Mechanism;

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
