//! The backends of one daemon: which there are, which work, and which one a box gets.
//!
//! Comes in: candidates in the order in which they are preferred, and whoever's choice among them.
//! Goes out: a started box and the backend it is of, or why there is none and what helps. Never here:
//! any of them by name; the order is whoever's who puts them together. A backend that was named is
//! used or the answer is no: only a choice that was left open moves on to the next one.

mod member;
mod report;

use std::sync::Arc;

use boxwood_api::BackendInfo;
use boxwood_backend::{Backend, Progress, Sandbox, StartError, Witness};
use boxwood_policy::AdmittedSpec;
use futures_util::future::join_all;

use crate::SessionError;
pub(crate) use member::Member;
use member::{Fault, Verdict};

/// Which backend is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first that works.
    #[default]
    Auto,
    /// The first that works of those on this machine.
    Local,
    /// This one or none.
    Named(String),
}

impl Choice {
    /// As people write it. Nothing is no wish, which is `auto`.
    pub fn new(text: &str) -> Self {
        match text.trim() {
            "" | "auto" => Self::Auto,
            "local" => Self::Local,
            name => Self::Named(name.to_owned()),
        }
    }

    /// Whether a box that the backend `name` runs is what was wanted.
    pub(crate) fn allows(&self, name: Option<&str>) -> bool {
        match self {
            Self::Auto | Self::Local => true,
            Self::Named(wanted) => name == Some(wanted),
        }
    }
}

/// Where the boxes of a backend are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    Elsewhere,
}

/// A backend that a daemon might use.
pub struct Candidate {
    name: String,
    place: Place,
    backend: Result<Arc<dyn Backend>, Fault>,
}

impl Candidate {
    /// One that could be launched. Whether boxes start in it is another question, asked later.
    pub fn living(backend: Arc<dyn Backend>) -> Self {
        Self {
            name: backend.name().to_owned(),
            place: Place::Here,
            backend: Ok(backend),
        }
    }

    /// One that could not be launched, and never will be in this process.
    pub fn absent(name: &str, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            place: Place::Here,
            backend: Err(Fault {
                why: why.into(),
                fix: hint.into(),
            }),
        }
    }

    /// Its boxes are on other machines, so that it is never what `local` means.
    #[must_use]
    pub fn elsewhere(self) -> Self {
        Self {
            place: Place::Elsewhere,
            ..self
        }
    }
}

/// Clones are the same backends.
#[derive(Clone)]
pub struct Backends {
    members: Arc<[Arc<Member>]>,
    /// For boxes of which nobody said what runs them.
    choice: Choice,
    /// What a request that names nothing at all comes to: its profile may have named one.
    usual: Choice,
}

impl Backends {
    /// Preferred ones first.
    pub fn new(candidates: impl IntoIterator<Item = Candidate>, choice: Choice) -> Self {
        let members = candidates.into_iter().map(Member::new).map(Arc::new);
        Self {
            members: members.collect(),
            usual: choice.clone(),
            choice,
        }
    }

    pub fn only(backend: Arc<dyn Backend>) -> Self {
        Self::new([Candidate::living(backend)], Choice::Auto)
    }

    /// Says what the default profile names, for everything that is told without a request.
    #[must_use]
    pub fn with_usual(self, backend: Option<&str>) -> Self {
        let usual = backend.map_or_else(|| self.choice.clone(), Choice::new);
        Self { usual, ..self }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }

    /// Whether there is a backend of that name, working or not. `auto` and `local` always are.
    pub fn check(&self, name: &str) -> Result<(), SessionError> {
        self.among(&Choice::new(name)).map(drop)
    }

    /// Every backend that could be launched.
    pub fn living(&self) -> Vec<Arc<dyn Backend>> {
        let backends = self.members.iter().filter_map(|member| member.backend());
        backends.cloned().collect()
    }

    /// The backend of that name. Whether it works shows when it is used.
    pub fn find(&self, name: &str) -> Result<Arc<dyn Backend>, SessionError> {
        let wanted = Choice::Named(name.trim().to_owned());
        let member = self.among(&wanted)?.first().copied();
        member
            .and_then(|member| member.backend().cloned())
            .ok_or_else(|| self.unavailable(&wanted))
    }

    /// What a request that names nothing would get now, as far as anybody has looked: the first
    /// that works, else the first that there is.
    pub fn current(&self) -> Option<Arc<dyn Backend>> {
        self.current_for(&self.usual)
    }

    /// The same for a choice of somebody's own.
    pub fn current_for(&self, choice: &Choice) -> Option<Arc<dyn Backend>> {
        let members = self.among(choice).unwrap_or_default();
        let works = members.iter().find(|member| member.works());
        let member = works.or_else(|| members.iter().find(|member| member.backend().is_some()));
        member.and_then(|member| member.backend().cloned())
    }

    /// Never waits: whether a backend works is known from the last look, and a new look is begun
    /// when that was long ago. Needs a Tokio runtime.
    pub fn info(&self) -> BackendInfo {
        self.info_for(&self.usual)
    }

    /// The same for a choice of somebody's own.
    pub fn info_for(&self, choice: &Choice) -> BackendInfo {
        let members = self.among(choice).unwrap_or_default();
        let mut found = None;
        // Those behind one that works are nobody's business, and cost nothing.
        for member in &members {
            member.look_in_background();
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

    /// Looks until one works that a request that names nothing would get. Meant for the start of a
    /// daemon, so that its first status is already right.
    pub async fn first_look(&self) -> bool {
        self.look_for(&self.usual).await
    }

    /// The same for a choice of somebody's own. Those that were looked at not long ago are not
    /// looked at again.
    pub async fn look_for(&self, choice: &Choice) -> bool {
        for member in self.among(choice).unwrap_or_default() {
            if member.look().await == Verdict::Works {
                return true;
            }
        }
        false
    }

    /// Whether a box of this spec could be started: looks until one works that it would get.
    pub async fn look_for_box(&self, spec: &AdmittedSpec) -> Result<(), SessionError> {
        let choice = spec.backend().map(Choice::new);
        let choice = choice.as_ref().unwrap_or(&self.choice);
        self.among(choice)?;
        if self.look_for(choice).await {
            Ok(())
        } else {
            Err(self.unavailable(choice))
        }
    }

    /// Where a box of this spec would be started now, as far as anybody has looked.
    pub fn current_of(&self, spec: &AdmittedSpec) -> Option<Arc<dyn Backend>> {
        let choice = spec.backend().map(Choice::new);
        self.current_for(choice.as_ref().unwrap_or(&self.choice))
    }

    /// Starts a box where the spec, or the daemon's own choice, says. The witness may be told of more
    /// than one box: the last one is the one that started.
    pub(crate) async fn start(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        witness: &Witness,
    ) -> Result<Begun, SessionError> {
        let choice = spec.backend().map(Choice::new);
        let choice = choice.unwrap_or_else(|| self.choice.clone());
        let members = self.among(&choice)?;
        let (failing, hopeful): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|member| matches!(member.verdict(), Verdict::Fails(_)));
        for member in &failing {
            // Whoever comes next has it back, once it is back.
            if !hopeful.is_empty() {
                member.look_in_background();
            }
        }
        let mut refused = None;
        for member in hopeful {
            match member.start(spec, progress, witness).await {
                Err(error @ StartError::Unavailable { .. }) => refused = Some(error),
                outcome => return begun(outcome),
            }
        }
        for member in failing {
            if member.look().await != Verdict::Works {
                continue;
            }
            match member.start(spec, progress, witness).await {
                Err(error @ StartError::Unavailable { .. }) => refused = Some(error),
                outcome => return begun(outcome),
            }
        }
        match refused {
            // Its own words, where nobody else has a say.
            Some(error) if self.among(&choice)?.len() == 1 => begun(Err(error)),
            _ => Err(self.unavailable(&choice)),
        }
    }

    pub(crate) async fn shutdown(&self) {
        let living = self.living();
        join_all(living.iter().map(|backend| backend.shutdown())).await;
    }

    fn among(&self, choice: &Choice) -> Result<Vec<&Arc<Member>>, SessionError> {
        let wanted = |member: &&Arc<Member>| match choice {
            Choice::Auto => true,
            Choice::Local => member.place == Place::Here,
            Choice::Named(name) => member.name == *name,
        };
        let members: Vec<_> = self.members.iter().filter(wanted).collect();
        match choice {
            Choice::Named(name) if members.is_empty() => Err(SessionError::UnknownBackend {
                name: name.clone(),
                known: self.names().map(str::to_owned).collect(),
            }),
            _ => Ok(members),
        }
    }

    /// Why none of the choice works, by what was last seen.
    fn unavailable(&self, choice: &Choice) -> SessionError {
        let faults: Vec<_> = self
            .among(choice)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|member| Some((member.name.as_str(), member.fault()?)))
            .collect();
        match faults.as_slice() {
            [] => SessionError::Unavailable {
                why: "no backend of this daemon can run the box".to_owned(),
                hint: "start the daemon with `--backend auto`".to_owned(),
            },
            [(name, fault)] => SessionError::Unavailable {
                why: format!("backend `{name}` is unavailable: {}", fault.why),
                hint: fault.fix.clone(),
            },
            faults => {
                let each = faults
                    .iter()
                    .map(|(name, fault)| format!("{name}: {}", fault.why));
                let each: Vec<_> = each.collect();
                SessionError::Unavailable {
                    why: format!("no backend is available ({})", each.join("; ")),
                    hint: "run `boxwood doctor` to see how to get one".to_owned(),
                }
            }
        }
    }
}

/// A box that is there, what runs it, and the spec that says so.
pub(crate) struct Begun {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) spec: Arc<AdmittedSpec>,
}

fn begun(outcome: Result<Begun, StartError>) -> Result<Begun, SessionError> {
    outcome.map_err(|source| SessionError::Start {
        source: Arc::new(source),
    })
}
