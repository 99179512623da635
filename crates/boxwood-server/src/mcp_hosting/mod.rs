//! Runs hosted MCP servers in the daemon's boxes, through facts, policy and sessions.

mod directories;
mod host;
mod leftover_boxes;
mod process_io;
mod runtime;
mod status_events;
mod toolchains;

pub(crate) use host::McpHost;
use runtime::DaemonRuntime;
pub use toolchains::toolchains;

#[cfg(test)]
mod tests;
