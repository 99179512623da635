//! What agents get: the `[box]` table, and `BOX__*` variables over it.
//!
//! The names and their meaning are LangBot's own `box` section, so that its users find what they know.

use std::collections::BTreeMap;
use std::path::Path;

use boxwood_agent::{AgentSettings, BoxSection, PLATFORM_GUARD};
use boxwood_client::Token;
use boxwood_policy::{ProfileConfig, Profiles};

use super::load::{ConfigError, Environment};

/// Of LangBot's own overrides.
const PREFIX: &str = "BOX__";

/// What the environment says about the table.
pub(super) fn variables(environment: &Environment) -> Vec<(String, String)> {
    let mut variables = environment.beginning(PREFIX);
    variables.extend(environment.beginning(PLATFORM_GUARD));
    variables
}

/// Relative directories are meant from where the daemon is started.
pub(super) fn settle(
    section: &BoxSection,
    profiles: &BTreeMap<String, ProfileConfig>,
) -> Result<AgentSettings, ConfigError> {
    for name in section.unused_variables() {
        tracing::warn!(name, "the variable names nothing of the `[box]` table");
    }
    let here = Path::new(".");
    let base = std::path::absolute(here).map_err(|source| ConfigError::Absolute {
        path: here.to_owned(),
        source,
    })?;
    // Profiles that make no sense are refused where they are used, with their own words.
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

/// The one that clients on this machine use as well.
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
    fn the_agents_timeout_is_its_profiles() {
        let of = |name: &str| {
            let section = section(json!({"local": {"profile": name}}));
            settle(&section, &with_profile()).expect("fine")
        };
        assert_eq!(of("quick").exec_timeout_sec, Some(2));
        assert_eq!(of("default").exec_timeout_sec, Some(30));
    }

    /// The runtime that has the boxes has its own, and refuses a name that it does not know.
    #[test]
    fn with_a_runtime_elsewhere_our_profiles_mean_nothing() {
        let away = json!({
            "local": {"profile": "theirs"}, "runtime": {"endpoint": "http://10.0.0.7:5410"}
        });
        let found = settle(&section(away), &with_profile()).expect("not ours to judge");
        assert_eq!(found.profile, "theirs");
        assert_eq!(found.exec_timeout_sec, None);
        let here = section(json!({"local": {"profile": "theirs"}}));
        assert!(settle(&here, &with_profile()).is_err());
    }
}
