//! The environment variables with which LangBot configures its runtime.

use std::fmt;

/// The values as set. Read by `boxwood-server`, which alone reads the environment.
#[derive(Clone, Default)]
pub struct Environment {
    /// `LANGBOT_BOX_CONFIG`: the `box:` section of LangBot's configuration as JSON.
    pub section: Option<String>,
    /// `HOME`, for paths that begin with `~`.
    pub home: Option<String>,
    /// `LANGBOT_BOX_CONTROL_TOKEN`.
    pub control_token: Option<String>,
    /// `LANGBOT_BOX_TRUSTED_INSTANCE_UUID`.
    pub trusted_instance: Option<String>,
    /// `LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS`.
    pub soft_storage_limits: bool,
}

/// Hides the token and the section, which may contain API keys.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("section", &self.section.as_ref().map(|_| "…"))
            .field("home", &self.home)
            .field("control_token", &self.control_token.as_ref().map(|_| "…"))
            .field("trusted_instance", &self.trusted_instance)
            .field("soft_storage_limits", &self.soft_storage_limits)
            .finish()
    }
}
