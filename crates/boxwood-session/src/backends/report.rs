//! Reports about backends. Unlike a status, these probe first.

use std::sync::Arc;

use boxwood_api::{BackendCapabilities, BackendReport, DoctorFinding, DoctorReport, FindingState};
use boxwood_backend::{Finding, Outcome};
use futures_util::future::join_all;

use super::{Backends, Candidate, Choice, best};
use crate::Result;

impl Backends {
    /// All backends in order, probed in parallel.
    pub async fn survey(&self) -> Vec<BackendReport> {
        self.probe_in_background();
        join_all(self.members.iter().map(|member| member.probe())).await;
        self.reports()
    }

    /// Waits only for probes of backends that `name` may stand for (the default, `auto` and `local` stand
    /// for several), because others may hang. The others are reported from their last probe.
    pub async fn survey_for(&self, name: Option<&str>) -> Vec<BackendReport> {
        self.probe_in_background();
        let choice = name.map_or_else(|| self.default_choice.clone(), Choice::new);
        self.probe_for(&choice).await;
        self.reports()
    }

    /// In tasks, so that results are kept even if the caller disconnects.
    fn probe_in_background(&self) {
        for member in self.members.iter() {
            member.probe_in_background();
        }
    }

    fn reports(&self) -> Vec<BackendReport> {
        let chosen = self.among(&self.default_choice).unwrap_or_default();
        let chosen = chosen.into_iter().find(|member| member.works());
        let is_chosen = |member| chosen.is_some_and(|chosen| Arc::ptr_eq(chosen, member));
        let members = self.members.iter();
        members
            .map(|member| report(member, is_chosen(member)))
            .collect()
    }

    /// All details of one backend from a new probe: the named one, or the one that a request without a
    /// backend would use. Also whether the others are available.
    pub async fn doctor(&self, name: Option<&str>) -> Result<DoctorReport> {
        let choice = name.map_or_else(|| self.default_choice.clone(), Choice::new);
        let members = self.among(&choice)?;
        let backends = self.survey().await;
        let Some(member) = best(&members) else {
            return Err(self.unavailable(&choice));
        };
        let findings = match member.examine().await {
            Some(Ok(probe)) => probe.findings.into_iter().map(finding).collect(),
            // The failure was recorded by the probe.
            Some(Err(_)) | None => member.fault().map(absent).into_iter().collect(),
        };
        Ok(DoctorReport::new(&member.name, findings).with_backends(backends))
    }
}

fn report(member: &Candidate, chosen: bool) -> BackendReport {
    let fault = member.fault();
    let capabilities = member.backend().map(|backend| backend.capabilities());
    BackendReport {
        name: member.name.clone(),
        available: member.works(),
        chosen,
        reason: fault.as_ref().map(|fault| fault.why.clone()),
        fix: fault.map(|fault| fault.fix).filter(|fix| !fix.is_empty()),
        capabilities: capabilities
            .as_ref()
            .map(|capabilities| BackendCapabilities {
                pty: capabilities.pty,
                managed_processes: capabilities.managed_processes,
                files: capabilities.files,
                network: capabilities.network,
                host_mounts: capabilities.host_mounts,
                live_mounts: capabilities.live_mounts,
            }),
        mechanisms: capabilities
            .map(|capabilities| capabilities.mechanisms)
            .unwrap_or_default(),
    }
}

fn absent(fault: super::Fault) -> DoctorFinding {
    DoctorFinding {
        name: "the backend itself".to_owned(),
        mechanism: None,
        state: FindingState::Fatal,
        detail: fault.why,
        matters: "without it no other check can run".to_owned(),
        fix: Some(fault.fix).filter(|fix| !fix.is_empty()),
    }
}

fn finding(finding: Finding) -> DoctorFinding {
    let (state, detail, fix) = match finding.outcome {
        Outcome::Works { detail } => (FindingState::Works, detail, None),
        Outcome::Missing { why, fix } => (FindingState::Missing, why, Some(fix)),
        Outcome::Fatal { why, fix } => (FindingState::Fatal, why, Some(fix)),
    };
    DoctorFinding {
        name: finding.name.to_owned(),
        mechanism: finding.mechanism,
        state,
        detail,
        matters: finding.matters.to_owned(),
        fix,
    }
}
