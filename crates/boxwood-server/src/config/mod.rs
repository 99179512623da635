//! The one typed tree of settings.
//!
//! Comes in: a TOML file, `BOXWOOD_*` variables, flags. Goes out: a [`Config`] in which every value
//! is known, or an error that names the file or variable and the key. Never here: acting on it.

mod agent;
mod endings;
mod engines;
mod langbot_variables;
mod load;
mod mcp;
mod peers;
mod places;
mod service_manager;
mod tree;

pub use endings::{RecoveryConfig, ShutdownConfig};
pub use engines::{DockerConfig, NsjailConfig, PodmanConfig, Pull};
pub(crate) use langbot_variables::LangBotVariables;
pub use load::{ConfigError, Flags, load, load_from};
pub use mcp::McpConfig;
pub use peers::PeerNetwork;
pub(crate) use service_manager::ActivatedSocket;
pub use service_manager::{ServiceManager, ServiceManagerError};
pub use tree::{
    AuthConfig, Config, HttpConfig, LangBotConfig, LogConfig, LogFormat, SessionConfig,
    SkillsConfig,
};
