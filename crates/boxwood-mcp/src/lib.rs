//! The agent's tools, served over the Model Context Protocol.
//!
//! Comes in: an [`Agent`](boxwood_agent::Agent), and a client on standard input or over HTTP, of either
//! era of the protocol. Goes out: tools, results, progress, workspace files as resources. Never here:
//! what the tools do, tokens and browsers, which runtime has the boxes.
#![forbid(unsafe_code)]

mod agent_server;
mod gateway;
mod hosting;
mod session_activity;
mod wire;

pub use agent_server::{
    Answer, Home, HttpServer, SESSION_HEADER, SESSION_META, StdioError, serve_lines, serve_stdio,
};
pub use gateway::{Gateway, GatewaySettings, Target};
pub use hosting::{
    BoxAvailability, BoxKind, CreatedBox, Hosting, HostingError, HostingMount, HostingSettings,
    McpClient, McpInput, McpMentions, McpReach, ProcessExit, ProcessIo, Runtime, ServerSummary,
    ToolFilter, client_config, mentions, read_document,
};
pub use wire::{BodyPermit, MAX_MESSAGE_BYTES};
