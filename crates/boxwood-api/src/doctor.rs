//! The report of `boxwood doctor` and `/v1/doctor`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BackendReport, Mechanism};

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
    pub fn beside(self, backends: Vec<BackendReport>) -> Self {
        Self { backends, ..self }
    }
}
