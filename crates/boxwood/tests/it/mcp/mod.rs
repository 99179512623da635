//! `boxwood mcp` and `boxwood mcp-server`.

mod commands;
mod hosted;
mod proxy;
mod server;
