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
mod recovery;
mod serve;
mod sockets;
mod start;
mod state_dir;
mod systemd;
mod takeover;
mod warm;
mod wiring;

pub use agent::AgentError;
pub use auth::{NewToken, TokenError, TokenInfo, Tokens};
pub use boxwood_langbot::InstanceError as LangBotError;
pub use config::{Config, ConfigError, Flags};
pub use facts::gather as gather_facts;
pub use http::openapi_json;
pub use load::LoadConfig;
pub use mcp_hosting::toolchains;
pub use recovery::Recovery;
pub use serve::{
    Ready, ServeError, Stop, rules, serve, serve_stdio, serve_until, serve_until_stdin_closes,
    skill_store, skills_root,
};
pub use sockets::SocketError;
pub use start::{Claim, Start};
pub use state_dir::StateDirError;
pub use takeover::TakeoverError;
pub use wiring::{LaunchError, PoolUse, launch};
