//! The gateway's view of `hosting`: servers by name and their connections.
//!
//! Traits, because the tests use servers without boxes.

use std::sync::Arc;

use boxwood_api::McpServerName;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::gateway::error::RpcError;
use crate::hosting::{Hosting, HostingError, RunState, Server, StopCause};
use crate::wire::{CallOptions, Connection, Handshake, Inbound, Message};

pub(crate) trait ServerRegistry: Send + Sync {
    /// Enabled servers, sorted.
    fn names(&self) -> Vec<McpServerName>;

    /// Starts the server if needed and waits until it is connected.
    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn HostedServer>, HostingError>>;

    /// `None` if the server is not connected.
    fn connected(&self, name: &McpServerName) -> Option<Arc<dyn HostedServer>>;

    /// Neither waits for the server nor starts it.
    fn status(&self, name: &McpServerName) -> ServerStatus;

    /// Incremented when a server starts, stops or restarts.
    fn changes(&self) -> watch::Receiver<u64>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerStatus {
    pub(crate) state: ServerState,
    /// Time of the last change of the definition.
    pub(crate) defined_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// Holds the connection id.
    Connected(u64),
    /// Stopped after idle time; the next call starts it.
    Idle,
    Starting,
    /// Disabled, stopped by a user or failed.
    Unavailable,
}

/// A connected server.
pub(crate) trait HostedServer: Send + Sync {
    fn name(&self) -> &McpServerName;

    /// Returns true if clients may list and call this tool.
    fn allows_tool(&self, tool: &str) -> bool;

    /// Returns true if the tool filter is empty, so that lists can be passed on unchanged.
    fn allows_all_tools(&self) -> bool;

    fn handshake(&self) -> Arc<Handshake>;

    /// The process shared by all clients that do not accept requests from the server.
    fn main(&self) -> Connection;

    /// The process for modern clients. `None` if the server only supports legacy protocol versions.
    fn modern(&self) -> BoxFuture<'_, Result<Option<Connection>, HostingError>>;

    /// Starts a process for a single client. Its handshake uses the client's `initialize` parameters.
    fn start_dedicated(
        &self,
        initialize: Box<RawValue>,
    ) -> BoxFuture<'_, Result<DedicatedProcess, HostingError>>;
}

/// Forwards a request to a process of this server.
pub(crate) async fn relay(
    hosted: &dyn HostedServer,
    connection: &Connection,
    request: Message,
    options: CallOptions,
) -> Result<Message, RpcError> {
    let answer = connection.relay(request, options).await;
    answer.map_err(|error| RpcError::call_failed(&error, hosted.name()))
}

/// A process for a single client. Dropping it stops the process.
pub(crate) struct DedicatedProcess {
    pub(crate) connection: Connection,
    pub(crate) handshake: Arc<Handshake>,
    /// Subscribed before the handshake, so that early server requests are not lost.
    pub(crate) inbound: Inbound,
    pub(crate) _guard: Box<dyn Send + Sync>,
}

impl ServerRegistry for Hosting {
    fn names(&self) -> Vec<McpServerName> {
        self.enabled_names()
    }

    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn HostedServer>, HostingError>> {
        async move {
            let server = Hosting::server(self, name).await?;
            Ok(Arc::new(server) as Arc<dyn HostedServer>)
        }
        .boxed()
    }

    fn connected(&self, name: &McpServerName) -> Option<Arc<dyn HostedServer>> {
        let server = Hosting::connected(self, name)?;
        Some(Arc::new(server))
    }

    fn status(&self, name: &McpServerName) -> ServerStatus {
        let Some((run_state, defined_at)) = Hosting::run_state_and_update_time(self, name) else {
            return ServerStatus {
                state: ServerState::Unavailable,
                defined_at: Timestamp::UNIX_EPOCH,
            };
        };
        let state = match run_state {
            RunState::Connected(server) => ServerState::Connected(server.connection.id()),
            RunState::Stopped(StopCause::Idle) => ServerState::Idle,
            RunState::Queued | RunState::Connecting | RunState::RetryWait { .. } => {
                ServerState::Starting
            }
            RunState::Disabled | RunState::Stopped(StopCause::Requested) | RunState::Failed(_) => {
                ServerState::Unavailable
            }
        };
        ServerStatus { state, defined_at }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        Hosting::changes(self)
    }
}

impl HostedServer for Server {
    fn name(&self) -> &McpServerName {
        Server::name(self)
    }

    fn allows_tool(&self, tool: &str) -> bool {
        self.filter().admits(tool)
    }

    fn allows_all_tools(&self) -> bool {
        self.filter().is_open()
    }

    fn handshake(&self) -> Arc<Handshake> {
        Server::handshake(self)
    }

    fn main(&self) -> Connection {
        Server::main(self)
    }

    fn modern(&self) -> BoxFuture<'_, Result<Option<Connection>, HostingError>> {
        let modern = Server::modern(self);
        async move { Ok(modern.await?.map(|(connection, _)| connection)) }.boxed()
    }

    fn start_dedicated(
        &self,
        initialize: Box<RawValue>,
    ) -> BoxFuture<'_, Result<DedicatedProcess, HostingError>> {
        async move {
            let child = Server::client_process(self, initialize).await?;
            let (connection, handshake, inbound, guard) = child.into_parts();
            Ok(DedicatedProcess {
                connection,
                handshake,
                inbound,
                _guard: guard,
            })
        }
        .boxed()
    }
}
