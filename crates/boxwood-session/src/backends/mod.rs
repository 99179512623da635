//! The backends of one daemon: which are available, and which one runs a box.
//!
//! A backend that a request names is used or the request fails. Only an open choice moves on to the
//! next backend.

mod candidate;
mod report;

use std::sync::Arc;

use boxwood_api::BackendInfo;
use boxwood_backend::{Backend, Progress, Sandbox, StartError, StartRecorder};
use boxwood_policy::AdmittedSpec;
use futures_util::future::join_all;

use crate::{Result, SessionError};
pub use candidate::Candidate;
use candidate::Fault;

/// Which backend is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first available one.
    #[default]
    Auto,
    /// The first available one on this machine.
    Local,
    /// This one or none.
    Named(String),
}

impl Choice {
    /// Parses a name. An empty one is `auto`.
    pub fn new(text: &str) -> Self {
        match text.trim() {
            "" | "auto" => Self::Auto,
            "local" => Self::Local,
            name => Self::Named(name.to_owned()),
        }
    }

    /// Returns true if a box of backend `name` fits the choice.
    pub(crate) fn allows(&self, name: Option<&str>) -> bool {
        match self {
            Self::Auto | Self::Local => true,
            Self::Named(requested) => name == Some(requested),
        }
    }
}

/// Clones share the backends.
#[derive(Clone)]
pub struct Backends {
    members: Arc<[Arc<Candidate>]>,
    /// For specs without a backend.
    choice: Choice,
    /// The choice of a request without fields: its profile may name a backend.
    default_choice: Choice,
}

impl Backends {
    /// In order of preference.
    pub fn new(candidates: impl IntoIterator<Item = Candidate>, choice: Choice) -> Self {
        Self {
            members: candidates.into_iter().map(Arc::new).collect(),
            default_choice: choice.clone(),
            choice,
        }
    }

    pub fn only(backend: Arc<dyn Backend>) -> Self {
        Self::new([Candidate::initialised(backend)], Choice::Auto)
    }

    /// Sets the choice of the default profile, for status reports.
    #[must_use]
    pub fn with_default_backend(self, backend: Option<&str>) -> Self {
        let default_choice = backend.map_or_else(|| self.choice.clone(), Choice::new);
        Self {
            default_choice,
            ..self
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }

    /// Fails if there is no backend with that name. It need not be available. `auto` and `local` always
    /// exist.
    pub fn check(&self, name: &str) -> Result<()> {
        self.among(&Choice::new(name)).map(drop)
    }

    /// All backends that were initialised.
    pub fn initialised(&self) -> Vec<Arc<dyn Backend>> {
        let backends = self.members.iter().filter_map(|member| member.backend());
        backends.cloned().collect()
    }

    /// Returns the backend with that name, available or not.
    pub fn find(&self, name: &str) -> Result<Arc<dyn Backend>> {
        let choice = Choice::Named(name.trim().to_owned());
        let member = self.among(&choice)?.first().copied();
        member
            .and_then(|member| member.backend().cloned())
            .ok_or_else(|| self.unavailable(&choice))
    }

    /// The backend of a request without fields, according to the last probes: the first available one,
    /// or else the first one.
    pub fn current(&self) -> Option<Arc<dyn Backend>> {
        self.current_for(&self.default_choice)
    }

    /// The same for another choice.
    pub fn current_for(&self, choice: &Choice) -> Option<Arc<dyn Backend>> {
        let members = self.among(choice).unwrap_or_default();
        best(&members)?.backend().cloned()
    }

    /// Never waits: uses the last probes and starts new ones if they are old. Needs a Tokio runtime.
    pub fn info(&self) -> BackendInfo {
        self.info_for(&self.default_choice)
    }

    /// The same for another choice.
    pub fn info_for(&self, choice: &Choice) -> BackendInfo {
        let members = self.among(choice).unwrap_or_default();
        let mut found = None;
        // Backends after an available one are not probed.
        for member in &members {
            member.probe_in_background();
            if member.works() {
                found = Some(*member);
                break;
            }
        }
        let shown = found.or(members.first().copied());
        BackendInfo {
            name: shown.map(|member| member.name.clone()),
            available: found.is_some(),
        }
    }

    /// Probes until one is available for a request without fields. For the start of a daemon, so that
    /// its first status is right.
    pub async fn first_probe(&self) -> bool {
        self.probe_for(&self.default_choice).await
    }

    /// The same for another choice. Backends with a recent probe are not probed again.
    pub async fn probe_for(&self, choice: &Choice) -> bool {
        for member in self.among(choice).unwrap_or_default() {
            if member.probe().await {
                return true;
            }
        }
        false
    }

    /// Fails if no box of this spec could be started. Probes until one backend is available.
    pub async fn probe_for_box(&self, spec: &AdmittedSpec) -> Result<()> {
        let choice = self.choice_of(spec);
        self.among(&choice)?;
        if self.probe_for(&choice).await {
            Ok(())
        } else {
            Err(self.unavailable(&choice))
        }
    }

    /// Where a box of this spec would be started, according to the last probes.
    pub fn current_of(&self, spec: &AdmittedSpec) -> Option<Arc<dyn Backend>> {
        self.current_for(&self.choice_of(spec))
    }

    fn choice_of(&self, spec: &AdmittedSpec) -> Choice {
        let named = spec.backend().map(Choice::new);
        named.unwrap_or_else(|| self.choice.clone())
    }

    /// Starts a box on the backend of the spec or, if it names none, of the daemon's choice. Several
    /// boxes may be recorded: the last one is the one that started.
    pub(crate) async fn start(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        recorder: &StartRecorder,
    ) -> Result<StartedBox> {
        let choice = self.choice_of(spec);
        let members = self.among(&choice)?;
        let is_only = members.len() == 1;
        let (failing, usable): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|member| member.fault().is_some());
        if !usable.is_empty() {
            // They are used again once a probe succeeds.
            for member in &failing {
                member.probe_in_background();
            }
        }
        let mut refused = None;
        for (index, member) in usable.iter().chain(&failing).enumerate() {
            let is_failing = index >= usable.len();
            let Some(backend) = member.backend() else {
                continue;
            };
            if is_failing && !member.probe().await {
                continue;
            }
            match member.start(backend, spec, progress, recorder).await {
                Err(error @ StartError::Unavailable { .. }) => refused = Some(error),
                outcome => return outcome.map_err(SessionError::start),
            }
        }
        match refused {
            // The error of a single backend is returned unchanged.
            Some(error) if is_only => Err(SessionError::start(error)),
            _ => Err(self.unavailable(&choice)),
        }
    }

    pub(crate) async fn shutdown(&self) {
        let backends = self.initialised();
        join_all(backends.iter().map(|backend| backend.shutdown())).await;
    }

    fn among(&self, choice: &Choice) -> Result<Vec<&Arc<Candidate>>> {
        let is_included = |member: &&Arc<Candidate>| match choice {
            Choice::Auto => true,
            Choice::Local => member.is_local,
            Choice::Named(name) => member.name == *name,
        };
        let members: Vec<_> = self.members.iter().filter(is_included).collect();
        match choice {
            Choice::Named(name) if members.is_empty() => Err(SessionError::UnknownBackend {
                name: name.clone(),
                known: self.names().map(str::to_owned).collect(),
            }),
            _ => Ok(members),
        }
    }

    /// Why no backend of the choice is available, according to the last probes.
    fn unavailable(&self, choice: &Choice) -> SessionError {
        let faults: Vec<_> = self
            .among(choice)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|member| Some((member.name.as_str(), member.fault()?)))
            .collect();
        let (why, hint) = match faults.as_slice() {
            [] => (
                "no backend of this daemon can run the box".to_owned(),
                "start the daemon with `--backend auto`".to_owned(),
            ),
            [(name, fault)] => (
                format!("backend `{name}` is unavailable: {}", fault.why),
                fault.fix.clone(),
            ),
            faults => {
                let reasons = faults
                    .iter()
                    .map(|(name, fault)| format!("{name}: {}", fault.why));
                let reasons: Vec<_> = reasons.collect();
                (
                    format!("no backend is available ({})", reasons.join("; ")),
                    "run `boxwood doctor` to see how to get one".to_owned(),
                )
            }
        };
        SessionError::Unavailable { why, hint }
    }
}

/// The first available one, or else the first initialised one, or else the first.
fn best<'a>(members: &[&'a Arc<Candidate>]) -> Option<&'a Arc<Candidate>> {
    let works = members.iter().find(|member| member.works());
    works
        .or_else(|| members.iter().find(|member| member.backend().is_some()))
        .or(members.first())
        .copied()
}

/// A started box, its backend, and its spec.
pub(crate) struct StartedBox {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) spec: Arc<AdmittedSpec>,
}
