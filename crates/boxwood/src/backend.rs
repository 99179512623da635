//! Starts the backend that runs boxes on this machine.
//!
//! Comes in: the configuration. Goes out: a backend. It is started before there is a runtime: its
//! helper process is forked from a program that has no other threads yet.

use std::sync::Arc;

use boxwood_api::{DoctorFinding, DoctorReport, FindingState};
use boxwood_backend::{Backend, Finding, Outcome as ProbeOutcome};
use boxwood_server::{Config, PoolUse};

use crate::failure::{Failure, Outcome, internal};

pub(crate) fn launch(config: &Config, pool: PoolUse) -> Outcome<Arc<dyn Backend>> {
    boxwood_server::launch(config, pool).map_err(|error| {
        let (code, hint) = (error.code(), error.hint().map(str::to_owned));
        Failure::new(code, error).maybe_hint(hint)
    })
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
