//! The daemon: configuration, listeners, HTTP routes, status codes, signals and shutdown.
//!
//! Isolation is implemented by the backends, admission by `boxwood-policy`.
#![forbid(unsafe_code)]

mod agent;
mod auth;
pub mod config;
mod facts;
mod http;
mod listen;
mod load;
mod mcp_hosting;
mod serve;
mod state_dir;
mod wiring;

pub use agent::AgentError;
pub use auth::{NewToken, TokenError, Tokens};
pub use boxwood_langbot::InstanceError as LangBotError;
pub use config::{Config, ConfigError, Flags};
pub use facts::gather as gather_facts;
pub use http::openapi_json;
pub use listen::sockets::SocketError;
pub use load::LoadConfig;
pub use mcp_hosting::toolchains;
pub use serve::recovery::Recovery;
pub use serve::start::{Claim, Start};
pub use serve::takeover::TakeoverError;
pub use serve::{
    Parent, Ready, ServeError, Stop, rules, serve, serve_until, skill_store, skills_root,
};
pub use state_dir::StateDirError;
pub use wiring::{LaunchError, PoolUse, launch};
