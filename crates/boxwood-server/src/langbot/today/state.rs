//! What today's dialect remembers between two requests, for all connections together.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use boxwood_api::SessionId;
use serde_json::Value;

use super::fence::Fence;
use super::grants::Grants;
use super::instance::{Gate, InstanceError};
use super::limits::Limits;
use super::local::Local;
use super::policy::AdmissionPolicy;
use super::ready::Readiness;
use super::seats::Seats;
use crate::config::LangBotVariables;
use crate::langbot::Fault;
use crate::langbot::config::BoxSection;

pub(crate) struct State {
    pub(super) gate: Gate,
    pub(super) fence: Fence,
    pub(super) grants: Grants,
    pub(super) seats: Seats,
    pub(super) readiness: Readiness,
    pub(super) janitor_is_there: AtomicBool,
    settings: Mutex<Settings>,
    /// Commands under way, by session.
    busy: Mutex<HashMap<SessionId, usize>>,
}

/// What the platform's configuration comes to.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    pub(super) policy: AdmissionPolicy,
    pub(super) local: Local,
}

impl Settings {
    fn updated(&self, section: &BoxSection, root: &Path) -> Result<Self, Fault> {
        Ok(Self {
            limits: self.limits.updated(section.get("limits"))?,
            policy: self
                .policy
                .clone()
                .succeeded_by(AdmissionPolicy::read(section.get("admission"))),
            local: Local::read(section.get("local").and_then(Value::as_object), root),
        })
    }

    pub(super) fn max_records(&self) -> usize {
        usize::try_from(self.limits.max_admission_records).unwrap_or(usize::MAX)
    }
}

impl State {
    /// `section` is what the environment brought; `root` is where its relative paths start.
    pub(crate) fn new(
        variables: &LangBotVariables,
        section: &BoxSection,
        root: &Path,
    ) -> Result<Self, InstanceError> {
        if variables.soft_storage_limits {
            tracing::warn!(
                "managed sandboxes are admitted without hard limits on what they store, because the environment says so"
            );
        }
        let settings = Settings::default();
        let settings = settings.updated(section, root).unwrap_or_else(|fault| {
            tracing::warn!(%fault, "a limit in LangBot's configuration makes no sense; defaults apply");
            Settings {
                policy: AdmissionPolicy::read(section.get("admission")),
                local: Local::read(section.get("local").and_then(Value::as_object), root),
                ..Settings::default()
            }
        });
        Ok(Self {
            gate: Gate::new(
                variables.control_token.as_deref(),
                variables.trusted_instance.as_deref(),
            )?,
            fence: Fence::default(),
            grants: Grants::default(),
            seats: Seats::default(),
            readiness: Readiness::new(variables.soft_storage_limits),
            janitor_is_there: AtomicBool::new(false),
            settings: Mutex::new(settings),
            busy: Mutex::default(),
        })
    }

    pub(super) fn settings(&self) -> Settings {
        self.lock_settings().clone()
    }

    /// Takes over a new configuration, or says what is wrong with it and changes nothing.
    pub(super) fn configure(&self, section: &BoxSection, root: &Path) -> Result<Settings, Fault> {
        let mut settings = self.lock_settings();
        *settings = settings.updated(section, root)?;
        self.readiness.forget();
        Ok(settings.clone())
    }

    fn lock_settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command is under way in the session for as long as the answer lives.
    pub(super) fn busy(&self, session: &SessionId) -> Busy<'_> {
        *self.lock_busy().entry(session.clone()).or_default() += 1;
        Busy {
            state: self,
            session: session.clone(),
        }
    }

    pub(super) fn is_busy(&self, session: &SessionId) -> bool {
        self.lock_busy().contains_key(session)
    }

    fn lock_busy(&self) -> MutexGuard<'_, HashMap<SessionId, usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Busy<'a> {
    state: &'a State,
    session: SessionId,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut busy = self.state.lock_busy();
        if let Some(count) = busy.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state() -> State {
        let section = BoxSection::default();
        State::new(&LangBotVariables::default(), &section, Path::new("/srv")).expect("state")
    }

    #[test]
    fn a_session_is_busy_while_any_command_runs() {
        let state = state();
        let id = SessionId::new("s").expect("id");
        let one = state.busy(&id);
        let two = state.busy(&id);
        drop(one);
        assert!(state.is_busy(&id));
        drop(two);
        assert!(!state.is_busy(&id));
    }

    #[test]
    fn a_configuration_that_makes_no_sense_changes_nothing() {
        let state = state();
        let mut section = BoxSection::default();
        let part = |value: Value| value.as_object().cloned().unwrap_or_default();
        section.merge(part(json!({"limits": {"max_sessions": 3}})));
        state.configure(&section, Path::new("/srv")).expect("taken");
        section.merge(part(
            json!({"limits": {"max_sessions": -3}, "admission": {"required": true}}),
        ));
        assert!(state.configure(&section, Path::new("/srv")).is_err());
        assert_eq!(state.settings().limits.max_sessions, 3);
        assert!(!state.settings().policy.required);
    }
}
