//! The agent's MCP server without a runtime.

mod http;
mod lines;
