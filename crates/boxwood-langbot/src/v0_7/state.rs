//! State of the 0.7 wire format, shared by all connections.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use boxwood_api::SessionId;
use serde_json::Value;

use super::admission::grants::Grants;
use super::admission::policy::AdmissionPolicy;
use super::admission::readiness::Readiness;
use super::capacity::{Capacity, Operations, Permit};
use super::files::local_dirs::LocalDirs;
use super::generations::Generations;
use super::instance::{InstanceError, InstanceGate};
use super::limits::Limits;
use crate::box_config::BoxConfig;
use crate::langbot::lock;
use crate::{ActionError, Environment};

pub(crate) struct State {
    pub(crate) gate: InstanceGate,
    pub(crate) generations: Generations,
    pub(crate) grants: Grants,
    pub(crate) capacity: Capacity,
    pub(crate) readiness: Readiness,
    pub(crate) cleanup_started: AtomicBool,
    settings: Mutex<Settings>,
    /// Running commands.
    commands: Operations,
}

/// The parsed configuration of LangBot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) policy: AdmissionPolicy,
    pub(crate) local: LocalDirs,
    /// Incremented with each new configuration.
    pub(crate) revision: u64,
}

impl Settings {
    fn new(limits: Limits, section: &BoxConfig, root: &Path) -> Self {
        Self {
            limits,
            policy: AdmissionPolicy::read(section.get("admission")),
            local: LocalDirs::read(section.get("local").and_then(Value::as_object), root),
            revision: 0,
        }
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
        let limits = Limits::default().updated(section.get("limits"));
        let limits = limits.unwrap_or_else(|error| {
            tracing::warn!(%error, "LangBot's configuration has an invalid limit; using the defaults");
            Limits::default()
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
            settings: Mutex::new(Settings::new(limits, section, root)),
            commands: Operations::default(),
        })
    }

    pub(crate) fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Applies a new configuration. An invalid one changes nothing.
    pub(crate) fn configure(
        &self,
        section: &BoxConfig,
        root: &Path,
    ) -> Result<Settings, ActionError> {
        let mut settings = lock(&self.settings);
        let limits = settings.limits.updated(section.get("limits"))?;
        let new = Settings::new(limits, section, root);
        *settings = Settings {
            policy: settings.policy.clone().succeeded_by(new.policy),
            revision: settings.revision + 1,
            ..new
        };
        Ok(settings.clone())
    }

    /// Marks the session as running a command until the permit is dropped.
    pub(crate) fn busy(&self, session: &SessionId) -> Permit<'_> {
        self.commands.begin(self.commands.lock(), session)
    }

    pub(crate) fn is_busy(&self, session: &SessionId) -> bool {
        self.commands.lock().contains_key(session)
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
