//! The environment variables with which LangBot configures its runtime.

/// The values as set. Read by `boxwood-server`, which alone reads the environment.
/// Without `Debug`, because the section and the token are secret.
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
