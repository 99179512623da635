//! The agent of this daemon. Its tools use the daemon's boxes and skill store, after policy.

mod boxes;
mod command;
mod error;
mod package;
mod workspace;

pub(crate) use boxes::DaemonBoxes;
pub(crate) use command::follow;
pub use error::AgentError;
pub(crate) use package::register;

use std::sync::Arc;

use boxwood_agent::{Agent, AgentSettings, Boxes, BoxesError, Remote, runtime_endpoint};
use boxwood_client::{Endpoint, Token};
use boxwood_policy::PolicyRules;

use crate::Config;
use crate::http::ApiError;
use crate::serve::with_real_paths;

/// Where the agent's boxes run.
pub(crate) enum AgentLocation {
    /// On this daemon.
    Local,
    /// On another daemon.
    Remote(Endpoint, Option<Token>),
    /// The agent is disabled.
    Disabled,
}

impl AgentLocation {
    /// Also creates the default workspace.
    pub(crate) fn prepare(config: &Config, operator: &PolicyRules) -> Result<Self, AgentError> {
        let settings = &config.agent;
        if !settings.enabled {
            return Ok(Self::Disabled);
        }
        if let Some(text) = &settings.endpoint {
            let endpoint = runtime_endpoint(text).map_err(AgentError::Endpoint)?;
            // The other daemon has its own file system.
            if let Endpoint::Unix { .. } = endpoint {
                workspace::prepare(settings, &rules(settings, operator))?;
            }
            return Ok(Self::Remote(endpoint, config.runtime_token.clone()));
        }
        workspace::prepare(settings, &rules(settings, operator))?;
        Ok(Self::Local)
    }

    /// Creates the agent. A remote daemon need not be reachable yet; tools report it meanwhile.
    pub(crate) fn agent(
        self,
        settings: &AgentSettings,
        boxes: impl FnOnce() -> DaemonBoxes,
    ) -> Agent {
        let boxes: Arc<dyn Boxes> = match self {
            Self::Disabled => return Agent::disabled(settings.clone()),
            Self::Local => Arc::new(boxes()),
            Self::Remote(endpoint, token) => Arc::new(Remote::new(endpoint, token)),
        };
        Agent::new(boxes, settings.clone())
    }
}

/// The backend configured for the agent; `None` leaves the choice to the daemon.
pub(crate) fn own_backend(settings: &AgentSettings) -> Option<String> {
    let word = settings.backend.trim();
    let named = !matches!(word, "" | "auto" | "local");
    named.then(|| word.to_owned())
}

/// The policy rules for the agent: the operator's rules with the agent's mount roots, as configured
/// and with symlinks resolved.
pub(crate) fn rules(settings: &AgentSettings, rules: &PolicyRules) -> PolicyRules {
    let mut allowed_roots = with_real_paths(&settings.allowed_mount_roots);
    allowed_roots.retain(|root| root.is_absolute());
    PolicyRules {
        allowed_roots,
        ..rules.clone()
    }
}

/// Always reachable: the runtime is this process.
impl From<ApiError> for BoxesError {
    fn from(error: ApiError) -> Self {
        error.detail().into()
    }
}
