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
pub use error::AgentError;
pub(crate) use package::{Source, register};

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_agent::{Agent, AgentSettings, BoxesError};
use boxwood_policy::PolicyRules;

use crate::http::ApiError;

/// Makes what has to be there before anybody calls a tool.
pub(crate) fn prepare(settings: &AgentSettings, operator: &PolicyRules) -> Result<(), AgentError> {
    workspace::prepare(settings, &rules(settings, operator))
}

/// An agent on these boxes, or one that says why it has none.
pub(crate) fn assemble(settings: &AgentSettings, boxes: impl FnOnce() -> DaemonBoxes) -> Agent {
    if !settings.enabled {
        return Agent::disabled(settings.clone());
    }
    Agent::new(Arc::new(boxes()), settings.clone())
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
