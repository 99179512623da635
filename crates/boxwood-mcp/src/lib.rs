//! The agent's tools, served over the Model Context Protocol.
//!
//! Comes in: an [`Agent`](boxwood_agent::Agent), and a client on standard input or over HTTP, of either
//! era of the protocol. Goes out: tools, results, progress, workspace files as resources. Never here:
//! what the tools do, tokens and browsers, which runtime has the boxes.
#![forbid(unsafe_code)]

mod attendance;
mod conversation;
mod gateway;
mod hosting;
mod http_server;
mod mime;
mod outcome;
mod patience;
mod progress;
mod resources;
mod sessions;
mod stdio;
mod tool_server;
mod uri;
mod wire;

pub use conversation::{Home, SESSION_HEADER, SESSION_META};
pub use gateway::{Gateway, GatewaySettings, Target};
pub use hosting::{
    BoxKind, Gone, HostDirectory, Hosting, HostingError, HostingSettings, MadeBox, McpClient,
    McpInput, McpMentions, McpReach, OwnMount, Runtime, ServerStanding, Standing, ToolFilter, Wire,
    client_config, mentions, read_document,
};
pub use http_server::{Answer, HttpServer};
pub use stdio::{StdioError, serve_lines, serve_stdio};
pub use wire::{Burden, MAX_MESSAGE_BYTES};
