//! MCP servers that run in boxes of their own.
//!
//! Comes in: servers as people describe them, and a runtime that has boxes. Goes out: running servers,
//! each with the phase it is in. Never here: HTTP, policy, and a process on the host.

mod adopt;
mod attend;
mod box_spec;
mod cache;
mod cache_use;
mod call;
mod changing;
mod check;
mod children;
mod client_config;
mod clock;
mod copies;
mod error;
mod fault;
mod filter;
mod following;
mod greeting;
mod health;
mod host;
mod hosted;
mod import;
mod install;
mod journal;
mod kit;
mod last_words;
mod launch;
mod locks;
mod measure;
mod naming;
mod orders;
mod overhear;
mod redact;
mod removal;
mod remove_tree;
mod retry;
mod run_record;
mod runtime;
mod seat;
mod secret_words;
mod server;
mod settings;
mod shown;
mod starting;
mod store;
mod supervisor;
mod sweep;
mod tail;
mod temporary_box;
mod tools;
mod track;
mod transient;
mod turns;
mod unfinished;

#[cfg(test)]
mod tests;

pub use client_config::{McpClient, McpReach, client_config};
pub use error::HostingError;
pub use filter::ToolFilter;
pub use host::Hosting;
pub use hosted::ServerStanding;
pub(crate) use hosted::{Condition, Stop};
pub use import::{McpInput, McpMentions, mentions, read_document};
pub(crate) use redact::Secrets;
pub use runtime::{BoxKind, Gone, HostDirectory, MadeBox, OwnMount, Runtime, Standing, Wire};
pub(crate) use server::Server;
pub use settings::HostingSettings;
