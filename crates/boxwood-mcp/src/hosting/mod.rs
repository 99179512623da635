//! Hosts MCP servers, each in its own box: definitions, installation, supervision and connections.
//!
//! Boxes are reached only through the trait [`Runtime`]. No server process runs on the host.

mod boxes;
mod cache;
mod changes;
mod context;
mod definitions;
mod error;
mod host;
mod launch;
mod logs;
mod process;
mod runtime;
mod settings;
mod supervisor;

#[cfg(test)]
mod tests;

pub use definitions::client_config::{McpClient, McpReach, client_config};
pub use definitions::import::{McpInput, McpMentions, mentions, read_document};
pub use definitions::tool_filter::ToolFilter;
pub use error::HostingError;
pub use host::Hosting;
pub(crate) use logs::redact::Secrets;
pub(crate) use process::server::Server;
pub use runtime::{
    BoxAvailability, BoxKind, CreatedBox, HostingMount, ProcessExit, ProcessIo, Runtime,
};
pub use settings::HostingSettings;
pub use supervisor::state::ServerSummary;
pub(crate) use supervisor::state::{RunState, StopCause};
