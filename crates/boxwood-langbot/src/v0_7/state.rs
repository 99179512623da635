//! State of the 0.7 wire format, shared by all connections.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use boxwood_api::SessionId;
use serde_json::Value;

use super::admission::grants::Grants;
use super::admission::policy::AdmissionPolicy;
use super::admission::readiness::Readiness;
use super::capacity::Capacity;
use super::files::local_dirs::LocalDirs;
use super::generations::Generations;
use super::instance::{InstanceError, InstanceGate};
use super::limits::Limits;
use crate::box_config::BoxConfig;
use crate::{ActionError, Environment};

pub(crate) struct State {
    pub(crate) gate: InstanceGate,
    pub(crate) generations: Generations,
    pub(crate) grants: Grants,
    pub(crate) capacity: Capacity,
    pub(crate) readiness: Readiness,
    pub(crate) cleanup_started: AtomicBool,
    settings: Mutex<Settings>,
    /// Running commands by session.
    busy: Mutex<HashMap<SessionId, usize>>,
}

/// The parsed configuration of LangBot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) policy: AdmissionPolicy,
    pub(crate) local: LocalDirs,
}

impl Settings {
    fn updated(&self, section: &BoxConfig, root: &Path) -> Result<Self, ActionError> {
        Ok(Self {
            limits: self.limits.updated(section.get("limits"))?,
            policy: self
                .policy
                .clone()
                .succeeded_by(AdmissionPolicy::read(section.get("admission"))),
            local: LocalDirs::read(section.get("local").and_then(Value::as_object), root),
        })
    }

    pub(crate) fn max_records(&self) -> usize {
        usize::try_from(self.limits.max_admission_records).unwrap_or(usize::MAX)
    }
}

impl State {
    /// `section` comes from the environment; relative paths are resolved in `root`.
    pub(crate) fn new(
        variables: &Environment,
        section: &BoxConfig,
        root: &Path,
    ) -> Result<Self, InstanceError> {
        if variables.soft_storage_limits {
            tracing::warn!(
                "managed sandboxes are admitted without hard storage limits, because LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS is set"
            );
        }
        let settings = Settings::default();
        let settings = settings.updated(section, root).unwrap_or_else(|error| {
            tracing::warn!(%error, "LangBot's configuration has an invalid limit; using the defaults");
            Settings {
                policy: AdmissionPolicy::read(section.get("admission")),
                local: LocalDirs::read(section.get("local").and_then(Value::as_object), root),
                ..Settings::default()
            }
        });
        Ok(Self {
            gate: InstanceGate::new(
                variables.control_token.as_deref(),
                variables.trusted_instance.as_deref(),
            )?,
            generations: Generations::default(),
            grants: Grants::default(),
            capacity: Capacity::default(),
            readiness: Readiness::new(variables.soft_storage_limits),
            cleanup_started: AtomicBool::new(false),
            settings: Mutex::new(settings),
            busy: Mutex::default(),
        })
    }

    pub(crate) fn settings(&self) -> Settings {
        self.lock_settings().clone()
    }

    /// Applies a new configuration. An invalid one changes nothing.
    pub(crate) fn configure(
        &self,
        section: &BoxConfig,
        root: &Path,
    ) -> Result<Settings, ActionError> {
        let mut settings = self.lock_settings();
        *settings = settings.updated(section, root)?;
        self.readiness.forget();
        Ok(settings.clone())
    }

    fn lock_settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the session as running a command until the guard is dropped.
    pub(crate) fn busy(&self, session: &SessionId) -> Busy<'_> {
        *self.lock_busy().entry(session.clone()).or_default() += 1;
        Busy {
            state: self,
            session: session.clone(),
        }
    }

    pub(crate) fn is_busy(&self, session: &SessionId) -> bool {
        self.lock_busy().contains_key(session)
    }

    fn lock_busy(&self) -> MutexGuard<'_, HashMap<SessionId, usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Busy<'a> {
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
        let section = BoxConfig::default();
        State::new(&Environment::default(), &section, Path::new("/srv")).expect("state")
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
    fn an_invalid_configuration_changes_nothing() {
        let state = state();
        let mut section = BoxConfig::default();
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
