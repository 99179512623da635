//! What LangBot tells a runtime by its environment.

use std::fmt;

/// As they were set; what they mean is decided where they are used.
#[derive(Clone, Default)]
pub(crate) struct LangBotVariables {
    /// `LANGBOT_BOX_CONFIG`: its `box:` section as JSON, for a runtime that it starts itself.
    pub(crate) section: Option<String>,
    /// `HOME`, which LangBot's paths may begin with as `~`.
    pub(crate) home: Option<String>,
    /// `LANGBOT_BOX_CONTROL_TOKEN`.
    pub(crate) control_token: Option<String>,
    /// `LANGBOT_BOX_TRUSTED_INSTANCE_UUID`.
    pub(crate) trusted_instance: Option<String>,
    /// `LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS`.
    pub(crate) soft_storage_limits: bool,
}

impl LangBotVariables {
    pub(crate) fn read() -> Self {
        // Text that is not UTF-8 must not count as absent: an unreadable token is a wrong token.
        let text = |name: &str| {
            let value = std::env::var_os(name)?;
            Some(value.to_string_lossy().into_owned())
        };
        let soft = text("LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS").unwrap_or_default();
        Self {
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
}

/// The token is a secret, and the section may hold some.
impl fmt::Debug for LangBotVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LangBotVariables")
            .field("section", &self.section.as_ref().map(|_| "…"))
            .field("home", &self.home)
            .field("control_token", &self.control_token.as_ref().map(|_| "…"))
            .field("trusted_instance", &self.trusted_instance)
            .field("soft_storage_limits", &self.soft_storage_limits)
            .finish()
    }
}
