//! `boxwood mcp` and `boxwood mcp-server`.

mod commands;
mod hosted;
pub(crate) mod proxy;
mod proxy_batches;
mod server;
