//! MCP servers in the daemon's own boxes.
//!
//! Comes in: what hosting asks of a box. Goes out: the answer, after facts, policy and sessions. Never
//! here: what a server is, how it is started and kept alive, and routes.

mod directories;
mod host;
mod news;
mod runtime;
mod toolchains;
mod unattended;
mod wire;

pub(crate) use host::McpHost;
use runtime::DaemonRuntime;
pub use toolchains::toolchains;

#[cfg(test)]
mod tests;
