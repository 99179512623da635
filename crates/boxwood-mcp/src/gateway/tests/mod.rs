//! The gateway in front of fake MCP servers that are connected by in-memory pipes.
//!
//! A test of one module belongs next to it. A test of the gateway as a whole belongs to its client: `legacy/` for
//! clients with sessions, `modern/` for clients without. Within these, the file names what is tested; `all_servers.rs`
//! has the tests of `/mcp/_all`. Tests with real hosting are in `hosting/tests/gateway.rs`.

mod fake_servers;
mod legacy;
mod modern;
