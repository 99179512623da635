//! A connected server, as callers use it.

use std::sync::Arc;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;

use super::client_processes::{ChildProcesses, ClientProcess};
use crate::hosting::cache::usage::CacheRef;
use crate::hosting::supervisor::state::ServerState;
use crate::hosting::{HostingError, Secrets, ToolFilter};
use crate::wire::{Connection, Handshake, Protocol};

/// The processes of one run of a server.
pub(crate) struct RunningServer {
    pub(crate) connection: Connection,
    pub(crate) handshake: Arc<Handshake>,
    pub(crate) children: Arc<ChildProcesses>,
    /// Keeps the install from being removed.
    pub(crate) _install: Option<CacheRef>,
    /// True if the process was running before this connection, and may be busy with a call of an earlier daemon.
    pub(crate) is_adopted: bool,
}

impl RunningServer {
    /// Closes all connections. The processes keep running until the box is removed.
    pub(crate) fn close(&self) {
        self.children.close();
        self.connection.close();
    }
}

/// Valid only for the current run of the server.
#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<ServerState>,
    live: Arc<RunningServer>,
}

impl Server {
    pub(crate) fn new(state: Arc<ServerState>, live: Arc<RunningServer>) -> Self {
        Self { state, live }
    }

    pub(crate) fn name(&self) -> &McpServerName {
        &self.state.name
    }

    /// Current filter. Changing it needs no restart.
    pub(crate) fn filter(&self) -> ToolFilter {
        self.state.filter()
    }

    pub(crate) fn secrets(&self) -> Arc<Secrets> {
        self.state.secrets()
    }

    pub(crate) fn handshake(&self) -> Arc<Handshake> {
        Arc::clone(&self.live.handshake)
    }

    pub(crate) fn main(&self) -> Connection {
        self.live.connection.clone()
    }

    /// A process that speaks the modern protocol version, if the server supports it.
    pub(crate) async fn modern(
        &self,
    ) -> Result<Option<(Connection, Arc<Handshake>)>, HostingError> {
        if self.live.handshake.protocol == Protocol::Modern {
            return Ok(Some((self.main(), self.handshake())));
        }
        self.live.children.modern().await
    }

    /// Starts a process for one client and performs the handshake with its parameters. Dropping it stops the
    /// process.
    pub(crate) async fn client_process(
        &self,
        initialize_params: Box<RawValue>,
    ) -> Result<ClientProcess, HostingError> {
        self.live.children.client_process(initialize_params).await
    }
}
