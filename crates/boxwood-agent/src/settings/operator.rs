//! Applies the settings of the daemon's operator to an agent in another process.
//!
//! The default workspace is not included: it belongs to the daemon's own agent.

use boxwood_api::{AgentState, AgentStatus, Unavailable};

use crate::settings::AgentSettings;
use crate::template::Template;

/// The settings of the daemon take precedence.
pub(crate) fn apply(
    local: &AgentSettings,
    daemon: AgentStatus,
) -> Result<AgentSettings, Unavailable> {
    if let Some(endpoint) = daemon.endpoint {
        return Err(elsewhere(&endpoint));
    }
    let forced = daemon.forced_template.map(|text| Template::parse(&text));
    let forced = forced.transpose().map_err(|error| Unavailable {
        state: AgentState::Unavailable,
        reason: format!("the daemon's forced session-id template cannot be used: {error}"),
        fix: "use the same version of boxwood as the daemon's".to_owned(),
    })?;
    Ok(AgentSettings {
        enabled: local.enabled && daemon.enabled,
        profile: daemon.profile,
        backend: daemon.backend.unwrap_or_else(|| local.backend.clone()),
        image: daemon.image.or_else(|| local.image.clone()),
        workspace_quota_mb: daemon.workspace_quota_mb.or(local.workspace_quota_mb),
        forced_template: forced.or_else(|| local.forced_template.clone()),
        ..local.clone()
    })
}

/// Boxes of this daemon would have another isolation than the operator configured.
fn elsewhere(endpoint: &str) -> Unavailable {
    Unavailable {
        state: AgentState::Unavailable,
        reason: format!("the daemon's agent has its boxes in another runtime, at {endpoint}"),
        fix: "use the daemon's own tools over HTTP (/mcp), or name that runtime with --url"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon() -> AgentStatus {
        AgentStatus {
            available: true,
            enabled: true,
            state: AgentState::Ready,
            profile: "offline_readonly".to_owned(),
            backend: None,
            image: None,
            workspace_quota_mb: None,
            endpoint: None,
            recent_error_count: 0,
            connector_error: String::new(),
            fix: None,
            shares_filesystem: false,
            forced_template: None,
            runtime: None,
        }
    }

    #[test]
    fn the_settings_of_the_daemon_take_precedence() {
        let local = AgentSettings {
            image: Some("ours".to_owned()),
            forced_template: Some(Template::parse("ours").expect("a template")),
            output_limit_chars: 7,
            ..AgentSettings::default()
        };
        let unset = apply(&local, daemon()).expect("settings");
        assert_eq!(unset.profile, "offline_readonly");
        assert_eq!(unset.image.as_deref(), Some("ours"));
        let strict = AgentStatus {
            enabled: false,
            backend: Some("docker".to_owned()),
            image: Some("theirs".to_owned()),
            workspace_quota_mb: Some(5),
            forced_template: Some("{global}".to_owned()),
            ..daemon()
        };
        let strict = apply(&local, strict).expect("settings");
        assert!(!strict.enabled);
        assert_eq!(strict.backend, "docker");
        assert_eq!(strict.image.as_deref(), Some("theirs"));
        assert_eq!(strict.workspace_quota_mb, Some(5));
        let forced = strict.forced_template.map(|forced| forced.to_string());
        assert_eq!(forced.as_deref(), Some("{global}"));
        assert_eq!(strict.output_limit_chars, 7, "not set by the daemon");
    }

    #[test]
    fn boxes_of_another_runtime_are_not_created_here() {
        let away = AgentStatus {
            endpoint: Some("http://there:5410".to_owned()),
            ..daemon()
        };
        let refused = apply(&AgentSettings::default(), away).unwrap_err();
        assert!(refused.reason.contains("http://there:5410"), "{refused:?}");
    }
}
