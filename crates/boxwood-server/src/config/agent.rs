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
    let settings = match Profiles::new(profiles, None) {
        Ok(all) => {
            let names = all.iter().map(|profile| profile.name.as_str());
            section.settings_with_profiles(&base, names)
        }
        Err(_) => section.settings(&base),
    };
    Ok(settings?)
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
