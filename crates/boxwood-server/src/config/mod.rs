//! Loads the configuration from a TOML file, `BOXWOOD_*` environment variables and flags.
//!
//! The result is a [`Config`] with all defaults filled in, or an error that names the file or variable
//! and the key.

mod agent;
mod engines;
mod langbot_variables;
mod load;
mod mcp;
mod paths;
mod peers;
mod service_manager;
mod shutdown;
mod tree;

pub use engines::{EngineConfig, NsjailConfig, Pull};
pub(crate) use langbot_variables::langbot_environment;
pub use load::{ConfigError, Flags, load, load_from};
pub use mcp::McpConfig;
pub use peers::PeerNetwork;
pub(crate) use service_manager::ActivatedSocket;
pub use service_manager::{ServiceManager, ServiceManagerError};
pub use shutdown::{RecoveryConfig, ShutdownConfig};
pub use tree::{
    AuthConfig, Config, HttpConfig, LangBotConfig, LogConfig, LogFormat, SessionConfig,
    SkillsConfig,
};
