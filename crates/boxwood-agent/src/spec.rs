//! The box specification of a conversation.
//!
//! An agent cannot choose images, mounts, limits, the network or another session. The runtime validates the request.

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
