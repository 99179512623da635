//! Starts the backend that runs boxes on this machine.
//!
//! Comes in: the configuration. Goes out: a backend. It is started before there is a runtime: its
//! helper process is forked from a program that has no other threads yet.

use std::sync::Arc;

use boxwood_api::{DoctorFinding, DoctorReport, ErrorCode, FindingState};
use boxwood_backend::{Backend, Finding, Outcome as ProbeOutcome};
use boxwood_server::Config;

use crate::failure::{Failure, Outcome, internal};

pub(crate) fn launch(config: &Config) -> Outcome<Arc<dyn Backend>> {
    Err(Failure::new(
        ErrorCode::BackendUnavailable,
        anyhow::anyhow!("there is no backend `{}` in this build", config.backend),
    ))
}

/// Tries every mechanism and reports.
pub(crate) async fn report(backend: &dyn Backend) -> Outcome<DoctorReport> {
    let probe = backend.probe().await.map_err(internal)?;
    let findings = probe.findings.into_iter().map(finding).collect();
    Ok(DoctorReport::new(backend.name(), findings))
}

fn finding(found: Finding) -> DoctorFinding {
    let (state, detail, fix) = match found.outcome {
        ProbeOutcome::Works { detail } => (FindingState::Works, detail, None),
        ProbeOutcome::Missing { why, fix } => (FindingState::Missing, why, Some(fix)),
        ProbeOutcome::Fatal { why, fix } => (FindingState::Fatal, why, Some(fix)),
    };
    DoctorFinding {
        name: found.name.to_owned(),
        mechanism: found.mechanism,
        state,
        detail,
        matters: found.matters.to_owned(),
        fix,
    }
}
