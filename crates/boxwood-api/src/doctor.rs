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
        }
    }

    /// With what each backend of the daemon is good for.
    #[must_use]
    pub fn beside(self, backends: Vec<BackendReport>) -> Self {
        Self { backends, ..self }
    }
}
