//! Configuration, wiring, routes and status codes.
//!
//! Comes in: settings and connections. Goes out: answers. Never here: isolation, which belongs to
//! backends, and judgement, which belongs to policy.
#![forbid(unsafe_code)]

mod agent;
mod auth;
pub mod config;
mod facts;
mod http;
mod langbot;
mod listen;
mod load;
mod mcp_hosting;
mod places;
mod recovery;
mod serve;
mod skill_store;
mod sockets;
mod start;
mod systemd;
mod takeover;
mod warm;
mod wiring;

pub use agent::AgentError;
pub use auth::{NewToken, TokenError, TokenInfo, Tokens};
pub use config::{Config, ConfigError, Flags};
pub use facts::gather as gather_facts;
pub use http::openapi_json;
pub use langbot::LangBotError;
pub use load::LoadConfig;
pub use mcp_hosting::toolchains;
pub use places::PlaceError;
pub use recovery::Recovery;
pub use serve::{
    Ready, ServeError, Stop, rules, serve, serve_stdio, serve_until, serve_until_stdin_closes,
    skills_root,
};
pub use skill_store::skill_store;
pub use sockets::SocketError;
pub use start::{Claim, Start};
pub use takeover::TakeoverError;
pub use wiring::{LaunchError, PoolUse, launch};
