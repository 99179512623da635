//! The verbs, grouped by what they act on: flags, help and behaviour.

mod deletions;
pub(crate) mod image;
pub(crate) mod mcp;
pub(crate) mod mcp_server;
pub(crate) mod processes;
pub(crate) mod sessions;
pub(crate) mod skill;
pub(crate) mod system;
pub(crate) mod tool;
