//! What is told about the backends to whoever asks.
//!
//! Comes in: nothing, or a backend's name. Goes out: words for the wire. Unlike a status, these look
//! first: somebody wants to know.

use std::sync::Arc;

use boxwood_api::{BackendCapabilities, BackendReport, DoctorFinding, DoctorReport, FindingState};
use boxwood_backend::{Finding, Outcome};
use futures_util::future::join_all;

use super::member::{Member, Verdict};
use super::{Backends, Choice};
use crate::SessionError;

impl Backends {
    /// Every backend there is, in order. All are looked at, at the same time.
    pub async fn survey(&self) -> Vec<BackendReport> {
        self.look_in_background();
        join_all(self.members.iter().map(|member| member.look())).await;
        self.reports()
    }

    /// The same for who wants a backend, the named one or else what a request gets that names nothing: those
    /// who could be it are waited for. Of the others it tells what was last seen, for one of them may hang.
    pub async fn survey_for(&self, name: Option<&str>) -> Vec<BackendReport> {
        self.look_in_background();
        let choice = name.map_or_else(|| self.usual.clone(), Choice::new);
        self.look_for(&choice).await;
        self.reports()
    }

    /// In tasks of their own: what is seen is kept also when whoever asked does not wait for it.
    fn look_in_background(&self) {
        for member in self.members.iter() {
            member.look_in_background();
        }
    }

    fn reports(&self) -> Vec<BackendReport> {
        let chosen = self.among(&self.usual).unwrap_or_default();
        let chosen = chosen.into_iter().find(|member| member.works());
        let is_chosen = |member| chosen.is_some_and(|chosen| Arc::ptr_eq(chosen, member));
        let members = self.members.iter();
        members
            .map(|member| report(member, is_chosen(member)))
            .collect()
    }

    /// Everything about one backend, by looking anew: the named one, else the one that a request
    /// gets that names nothing. Beside it, whether the others would do.
    pub async fn doctor(&self, name: Option<&str>) -> Result<DoctorReport, SessionError> {
        let choice = name.map_or_else(|| self.usual.clone(), Choice::new);
        let members = self.among(&choice)?;
        let backends = self.survey().await;
        let member = members
            .iter()
            .find(|member| member.works())
            .or_else(|| members.iter().find(|member| member.backend().is_some()))
            .or(members.first());
        let Some(member) = member else {
            return Err(self.unavailable(&choice));
        };
        let findings = match member.examine().await {
            Some(Ok(probe)) => probe.findings.into_iter().map(finding).collect(),
            // What went wrong was recorded with the look.
            Some(Err(_)) | None => member.fault().map(absent).into_iter().collect(),
        };
        Ok(DoctorReport::new(&member.name, findings).beside(backends))
    }
}

fn report(member: &Member, chosen: bool) -> BackendReport {
    let fault = member.fault();
    let capabilities = member.backend().map(|backend| backend.capabilities());
    BackendReport {
        name: member.name.clone(),
        available: member.verdict() == Verdict::Works,
        chosen,
        reason: fault.as_ref().map(|fault| fault.why.clone()),
        fix: fault.map(|fault| fault.fix).filter(|fix| !fix.is_empty()),
        capabilities: capabilities.as_ref().map(|able| BackendCapabilities {
            pty: able.pty,
            managed_processes: able.managed_processes,
            files: able.files,
            network: able.network,
            host_mounts: able.host_mounts,
            live_mounts: able.live_mounts,
        }),
        mechanisms: capabilities.map(|able| able.mechanisms).unwrap_or_default(),
    }
}

fn absent(fault: super::Fault) -> DoctorFinding {
    DoctorFinding {
        name: "the backend itself".to_owned(),
        mechanism: None,
        state: FindingState::Fatal,
        detail: fault.why,
        matters: "without it nothing else can be tried".to_owned(),
        fix: Some(fault.fix).filter(|fix| !fix.is_empty()),
    }
}

fn finding(found: Finding) -> DoctorFinding {
    let (state, detail, fix) = match found.outcome {
        Outcome::Works { detail } => (FindingState::Works, detail, None),
        Outcome::Missing { why, fix } => (FindingState::Missing, why, Some(fix)),
        Outcome::Fatal { why, fix } => (FindingState::Fatal, why, Some(fix)),
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
