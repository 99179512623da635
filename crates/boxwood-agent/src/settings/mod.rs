//! The settings of an agent.
//!
//! They are read from the `box` section and its environment variables. An error names the key.

mod environment;
pub(crate) mod operator;
mod realpath;
mod section;

use std::path::PathBuf;

use crate::template::{Template, TemplateError};
use crate::tools::schemas::DEFAULT_TIMEOUT_SEC;
pub use environment::PLATFORM_GUARD;
pub use section::BoxSection;

/// The profiles that every runtime has.
pub const BUILT_IN_PROFILES: [&str; 4] = [
    "default",
    "network_basic",
    "network_extended",
    "offline_readonly",
];

const OUTPUT_LIMIT_CHARS: usize = 4_000;

const TOOL_TIMEOUT_SEC: u64 = 30;

/// An image may have to be pulled first.
const START_TIMEOUT_SEC: u64 = 60;

/// The validated section.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSettings {
    pub enabled: bool,
    /// `local`, or the name of one backend.
    pub backend: String,
    /// Address of the runtime, if it is another process.
    pub endpoint: Option<String>,
    pub profile: String,
    /// Overrides the profile's image.
    pub image: Option<String>,
    pub host_root: Option<PathBuf>,
    /// Below which directories of the host may be mounted.
    pub allowed_mount_roots: Vec<PathBuf>,
    /// Host directory for `/workspace`. Without it every box has a private workspace.
    pub default_workspace: Option<PathBuf>,
    pub skills_root: Option<PathBuf>,
    /// 0 means no limit, `None` the limit of the profile.
    pub workspace_quota_mb: Option<u64>,
    /// Limit of each output stream in a result.
    pub output_limit_chars: usize,
    /// A session-id template that overrides all others.
    pub forced_template: Option<Template>,
    /// Replaces the built-in guidance.
    pub guidance: Option<String>,
    /// Timeout of tools other than `exec`.
    pub tool_timeout_sec: u64,
    /// Default timeout of a command, if it is known. The profile determines it.
    pub exec_timeout_sec: Option<u64>,
    /// Timeout for starting a box, in addition to that of the call.
    pub start_timeout_sec: u64,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            backend: "local".to_owned(),
            endpoint: None,
            profile: "default".to_owned(),
            image: None,
            host_root: None,
            allowed_mount_roots: Vec::new(),
            default_workspace: None,
            skills_root: None,
            workspace_quota_mb: None,
            output_limit_chars: OUTPUT_LIMIT_CHARS,
            forced_template: None,
            guidance: None,
            tool_timeout_sec: TOOL_TIMEOUT_SEC,
            exec_timeout_sec: Some(DEFAULT_TIMEOUT_SEC),
            start_timeout_sec: START_TIMEOUT_SEC,
        }
    }
}

/// A section that cannot be used. Texts without a key are those of LangBot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("unknown box profile '{name}', available profiles: {}", available.join(", "))]
    UnknownProfile {
        name: String,
        available: Vec<String>,
    },
    #[error("workspace_quota_mb must be an integer greater than or equal to 0")]
    QuotaNotAnInteger,
    #[error("workspace_quota_mb must be greater than or equal to 0")]
    QuotaNegative,
    #[error("{key} is not a key of the box section; it has {}", known.join(", "))]
    UnknownKey { key: String, known: Vec<String> },
    #[error("{key} must be {expected}")]
    Mistyped { key: String, expected: String },
    #[error(
        "{key} is relative and box.local.host_root is not set; write an absolute path, or set host_root"
    )]
    NoHostRoot { key: &'static str },
    #[error("box.force_session_id_template cannot be used")]
    Template(#[source] TemplateError),
    #[error("failed to get the base directory of relative paths: {why}")]
    NoBase { why: String },
}
