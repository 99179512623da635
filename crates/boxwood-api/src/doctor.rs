//! What `boxwood doctor` and `/v1/doctor` found on this host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BackendReport, Mechanism};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    Works,
    /// Boxes start without it, and their labels say so.
    Missing,
    /// No box can start without it.
    Fatal,
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorFinding {
    pub name: String,
    /// The entry of the isolation label it stands for, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    pub state: FindingState,
    /// What was seen, or why it is missing.
    pub detail: String,
    /// Why a person should care.
    pub matters: String,
    /// The command or setting that gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    pub backend: String,
    /// Whether boxes can start here at all.
    pub usable: bool,
    pub findings: Vec<DoctorFinding>,
    /// Every backend of this daemon, in the order in which they are tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendReport>,
    /// What there is on this machine for programs that boxes with the host's own system run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolchains: Vec<ToolchainFinding>,
}

/// A program that most MCP servers need. Boxes start without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolchainFinding {
    pub name: String,
    /// Where a box finds it; absent when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What needs it.
    pub matters: String,
    /// How to do without it, or to get it.
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

    /// With what MCP servers find here.
    #[must_use]
    pub fn with_toolchains(self, toolchains: Vec<ToolchainFinding>) -> Self {
        Self { toolchains, ..self }
    }

    /// With what each backend of the daemon is good for.
    #[must_use]
    pub fn beside(self, backends: Vec<BackendReport>) -> Self {
        Self { backends, ..self }
    }
}
