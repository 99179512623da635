//! The `[box]` table for agents, with `BOX__*` variables as overrides.
//!
//! Names and meaning are those of LangBot's `box` section.

use std::collections::BTreeMap;

use boxwood_agent::{AgentSettings, BoxSection, PLATFORM_GUARD};
use boxwood_client::Token;
use boxwood_policy::{ProfileConfig, Profiles};

use super::load::{ConfigError, Environment};
use super::tree::absolute;

/// Prefix of LangBot's overrides.
const PREFIX: &str = "BOX__";

/// The overrides from the environment.
pub(super) fn variables(environment: &Environment) -> Vec<(String, String)> {
    let mut variables = environment.with_prefix(PREFIX);
    variables.extend(environment.with_prefix(PLATFORM_GUARD));
    variables
}

/// Relative directories are resolved against the working directory at startup.
pub(super) fn resolve(
    section: &BoxSection,
    profiles: &BTreeMap<String, ProfileConfig>,
) -> Result<AgentSettings, ConfigError> {
    for name in section.unused_variables() {
        tracing::warn!(
            name,
            "ignoring an environment variable that is not a key of the `[box]` table"
        );
    }
    let base = absolute(".".into())?;
    // Invalid profiles are reported where they are used.
    let Ok(all) = Profiles::new(profiles, None) else {
        return Ok(section.settings(&base)?);
    };
    let names = all.iter().map(|profile| profile.name.as_str());
    let mut settings = section.settings_with_profiles(&base, names)?;
    if settings.endpoint.is_none() {
        let own = all.iter().find(|profile| profile.name == settings.profile);
        settings.exec_timeout_sec = own.map(|profile| profile.timeout_sec);
    }
    Ok(settings)
}

/// The same variable that local clients use.
pub(super) fn token(environment: &Environment) -> Result<Option<Token>, ConfigError> {
    let name = "BOXWOOD_TOKEN";
    let token = environment.get(name).map(Token::new).transpose();
    token.map_err(|error| ConfigError::Variable {
        name: name.to_owned(),
        message: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn section(written: serde_json::Value) -> BoxSection {
        serde_json::from_value(written).expect("a section")
    }

    fn with_profile() -> BTreeMap<String, ProfileConfig> {
        let profile = ProfileConfig {
            timeout_sec: Some(2),
            ..ProfileConfig::default()
        };
        [("quick".to_owned(), profile)].into()
    }

    #[test]
    fn the_agents_exec_timeout_comes_from_its_profile() {
        let of = |name: &str| {
            let section = section(json!({"local": {"profile": name}}));
            resolve(&section, &with_profile()).expect("fine")
        };
        assert_eq!(of("quick").exec_timeout_sec, Some(2));
        assert_eq!(of("default").exec_timeout_sec, Some(30));
    }

    /// The remote daemon has profiles of its own, and rejects unknown names itself.
    #[test]
    fn profiles_are_not_checked_if_the_runtime_is_remote() {
        let remote = json!({
            "local": {"profile": "theirs"}, "runtime": {"endpoint": "http://10.0.0.7:5410"}
        });
        let found = resolve(&section(remote), &with_profile()).expect("not ours to judge");
        assert_eq!(found.profile, "theirs");
        assert_eq!(found.exec_timeout_sec, None);
        let local = section(json!({"local": {"profile": "theirs"}}));
        assert!(resolve(&local, &with_profile()).is_err());
    }
}
