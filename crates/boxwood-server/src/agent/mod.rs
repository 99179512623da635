//! The agent of this daemon: its tools act on the daemon's own boxes.
//!
//! Comes in: what a tool asks of a box or of the skill store. Goes out: the answer, after facts, policy
//! and sessions. Never here: what a tool means, and routes.

mod boxes;
mod command;
mod error;
mod package;
mod skills;
mod workspace;

pub(crate) use boxes::DaemonBoxes;
pub(crate) use command::follow;
pub use error::AgentError;
pub(crate) use package::{Source, register};

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_agent::{Agent, AgentSettings, Boxes, BoxesError, Connector, runtime_endpoint};
use boxwood_client::{Endpoint, Token};
use boxwood_policy::PolicyRules;

use crate::Config;
use crate::http::ApiError;

/// Where the agent's boxes are.
pub(crate) enum Home {
    Here,
    /// Another daemon has them.
    Elsewhere(Endpoint, Option<Token>),
    /// It has none.
    Nowhere,
}

impl Home {
    /// Also makes what has to be there before anybody calls a tool.
    pub(crate) fn prepare(config: &Config, operator: &PolicyRules) -> Result<Self, AgentError> {
        let settings = &config.agent;
        if !settings.enabled {
            return Ok(Self::Nowhere);
        }
        if let Some(text) = &settings.endpoint {
            let endpoint = runtime_endpoint(text).map_err(AgentError::Endpoint)?;
            // Its files are the same as ours.
            if let Endpoint::Unix { .. } = endpoint {
                workspace::prepare(settings, &rules(settings, operator))?;
            }
            return Ok(Self::Elsewhere(endpoint, config.runtime_token.clone()));
        }
        workspace::prepare(settings, &rules(settings, operator))?;
        Ok(Self::Here)
    }

    /// An agent on these boxes, on another daemon's, or one that says why it has none. Another daemon
    /// need not be there yet: it is looked for, and tools say so meanwhile.
    pub(crate) fn agent(
        self,
        settings: &AgentSettings,
        boxes: impl FnOnce() -> DaemonBoxes,
    ) -> Agent {
        let boxes: Arc<dyn Boxes> = match self {
            Self::Nowhere => return Agent::disabled(settings.clone()),
            Self::Here => Arc::new(boxes()),
            Self::Elsewhere(endpoint, token) => {
                Arc::new(Connector::remote(endpoint, token).boxes())
            }
        };
        Agent::new(boxes, settings.clone())
    }
}

/// The backend that the agent insists on; `None` leaves it to the daemon.
pub(crate) fn own_backend(settings: &AgentSettings) -> Option<String> {
    let word = settings.backend.trim();
    let named = !matches!(word, "" | "auto" | "local");
    named.then(|| word.to_owned())
}

/// What the agent's requests are judged by: the operator's rules, with the agent's own mount roots.
/// Symlinks in these are the operator's, so both spellings count.
pub(crate) fn rules(settings: &AgentSettings, rules: &PolicyRules) -> PolicyRules {
    let given = settings.allowed_mount_roots.iter();
    let mut allowed_roots: Vec<PathBuf> = given
        .flat_map(|root| [Some(root.clone()), root.canonicalize().ok()])
        .flatten()
        .filter(|root| root.is_absolute())
        .collect();
    allowed_roots.dedup();
    PolicyRules {
        allowed_roots,
        ..rules.clone()
    }
}

/// The runtime is this very process, so it was reached.
impl From<ApiError> for BoxesError {
    fn from(error: ApiError) -> Self {
        if let Some(cause) = error.cause() {
            tracing::error!(cause, "a tool met a failure of ours");
        }
        error.detail().into()
    }
}
