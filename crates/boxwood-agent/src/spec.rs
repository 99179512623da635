//! The box that a conversation gets, as asked of the runtime.
//!
//! Comes in: the operator's settings, and the few things that an agent may choose. Goes out: a request.
//! Never here: judgement. The runtime's own door decides what is allowed, and an agent has no field
//! for images, mounts, limits, the network or another session.

use boxwood_api::{SessionId, SpecRequest};

use crate::config::AgentSettings;
use crate::state;

/// A box without a command.
pub(crate) fn of_box(
    settings: &AgentSettings,
    session: &SessionId,
    skills: Vec<String>,
) -> SpecRequest {
    SpecRequest {
        session_id: Some(session.clone()),
        profile: Some(settings.profile.clone()),
        image: settings.image.clone(),
        host_path: settings
            .default_workspace
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned()),
        workspace_quota_mb: settings.workspace_quota_mb,
        backend: state::wanted_backend(settings).map(str::to_owned),
        skills,
        ..SpecRequest::default()
    }
}
