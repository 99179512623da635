//! The Model Context Protocol: the agent's tools as an MCP server, hosted MCP servers in boxes, and the
//! gateway in front of them.
//!
//! What the tools do is in `boxwood_agent`. Tokens, `Host` and `Origin` are checked by the daemon.
#![forbid(unsafe_code)]

mod agent_server;
mod gateway;
mod hosting;
mod protocol_versions;
mod session_activity;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use agent_server::{
    Answer, DefaultConversation, HttpServer, SESSION_HEADER, SESSION_META, StdioError, serve_lines,
    serve_stdio,
};
pub use gateway::{Gateway, GatewaySettings, Target};
pub use hosting::{
    BoxAvailability, BoxKind, CreatedBox, Hosting, HostingError, HostingMount, HostingSettings,
    McpClient, McpInput, McpMentions, McpReach, ProcessExit, ProcessIo, Runtime, ServerSummary,
    ToolFilter, client_config, mentions, read_document,
};
pub use wire::{BodyPermit, MAX_MESSAGE_BYTES};

/// Calls the function when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    fn new(function: F) -> Self {
        Self(Some(function))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(function) = self.0.take() {
            function();
        }
    }
}

/// Locks the mutex even if a thread panicked while it was locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
