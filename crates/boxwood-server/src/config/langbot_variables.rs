//! Reads the environment variables of LangBot.

use boxwood_langbot::Environment;

pub(crate) fn langbot_environment() -> Environment {
    // A value that is not UTF-8 must not count as absent: it would disable a token check.
    let text = |name: &str| {
        let value = std::env::var_os(name)?;
        Some(value.to_string_lossy().into_owned())
    };
    let soft = text("LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS").unwrap_or_default();
    Environment {
        section: text("LANGBOT_BOX_CONFIG").filter(|text| !text.is_empty()),
        home: text("HOME").filter(|home| !home.is_empty()),
        control_token: text("LANGBOT_BOX_CONTROL_TOKEN"),
        trusted_instance: text("LANGBOT_BOX_TRUSTED_INSTANCE_UUID"),
        soft_storage_limits: matches!(
            soft.trim().to_lowercase().as_str(),
            "1" | "true" | "yes" | "on"
        ),
    }
}
