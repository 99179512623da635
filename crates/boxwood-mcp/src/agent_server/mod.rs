//! The agent's tools as an MCP server, over stdio and Streamable HTTP.

mod conversation;
mod http_server;
mod keep_alive;
mod mime;
mod progress;
mod resources;
mod sessions;
mod stdio;
mod tool_result;
mod tool_server;
mod uri;

pub use conversation::{DefaultConversation, SESSION_HEADER, SESSION_META};
pub use http_server::{Answer, HttpServer};
pub use stdio::{StdioError, serve_lines, serve_stdio};
