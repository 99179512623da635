//! What the gateway sees of hosting: servers by name, and what each can be asked through.
//!
//! Two traits, so that everything before them can be shown with processes that have no box.

use std::sync::Arc;

use boxwood_api::McpServerName;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::hosting::{Condition, Hosting, HostingError, Server, Stop};
use crate::wire::{Connection, Greeting, Inbound};

pub(crate) trait House: Send + Sync {
    /// Those that are not disabled, sorted.
    fn names(&self) -> Vec<McpServerName>;

    /// Starts it when that is needed, and waits until it is connected.
    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn Behind>, HostingError>>;

    /// Only when it is connected already.
    fn connected(&self, name: &McpServerName) -> Option<Arc<dyn Behind>>;

    /// Neither waits nor starts.
    fn standing(&self, name: &McpServerName) -> Standing;

    /// Counts up whenever a server comes, goes or is another process than before.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// One server, without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) how: How,
    /// When it was last described anew.
    pub(crate) edition: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By the connection of this number.
    Connected(u64),
    /// Nobody called it for long; the next call starts it.
    Resting,
    /// It is being started.
    Coming,
    /// It does not come by itself.
    Away,
}

/// A process for clients of the stateless era, where there is one.
pub(crate) type Stateless<'a> =
    BoxFuture<'a, Result<Option<(Connection, Arc<Greeting>)>, HostingError>>;

/// One connected server.
pub(crate) trait Behind: Send + Sync {
    fn name(&self) -> &McpServerName;

    /// Whether clients may see and call this tool.
    fn admits(&self, tool: &str) -> bool;

    /// Whether no tool is kept back, so that lists can pass as they are.
    fn admits_all(&self) -> bool;

    fn greeting(&self) -> Arc<Greeting>;

    /// The process that everybody shares who cannot be asked anything.
    fn main(&self) -> Connection;

    /// The process for clients of the stateless era, when the server knows that era.
    fn modern(&self) -> Stateless<'_>;

    /// A process for one client alone, greeted with the client's own words.
    fn own(&self, initialize: Box<RawValue>) -> BoxFuture<'_, Result<Child, HostingError>>;
}

/// A process of one client's. Dropping it stops the process.
pub(crate) struct Child {
    pub(crate) connection: Connection,
    pub(crate) greeting: Arc<Greeting>,
    /// Taken before the greeting, so that nothing the server asked at once is lost.
    pub(crate) inbound: Inbound,
    pub(crate) _keep: Box<dyn Send + Sync>,
}

impl House for Hosting {
    fn names(&self) -> Vec<McpServerName> {
        self.enabled_names()
    }

    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn Behind>, HostingError>> {
        async move {
            let server = Hosting::server(self, name).await?;
            Ok(Arc::new(server) as Arc<dyn Behind>)
        }
        .boxed()
    }

    fn connected(&self, name: &McpServerName) -> Option<Arc<dyn Behind>> {
        let server = Hosting::connected(self, name)?;
        Some(Arc::new(server))
    }

    fn standing(&self, name: &McpServerName) -> Standing {
        let Some((condition, edition)) = Hosting::standing(self, name) else {
            return Standing {
                how: How::Away,
                edition: Timestamp::UNIX_EPOCH,
            };
        };
        let how = match condition {
            Condition::Connected(live) => How::Connected(live.connection.id()),
            Condition::Stopped(Stop::Idle) => How::Resting,
            Condition::Queued | Condition::Connecting | Condition::Pausing { .. } => How::Coming,
            Condition::Disabled | Condition::Stopped(Stop::ByHand) | Condition::Failed(_) => {
                How::Away
            }
        };
        Standing { how, edition }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        Hosting::changes(self)
    }
}

impl Behind for Server {
    fn name(&self) -> &McpServerName {
        Server::name(self)
    }

    fn admits(&self, tool: &str) -> bool {
        self.filter().admits(tool)
    }

    fn admits_all(&self) -> bool {
        self.filter().is_open()
    }

    fn greeting(&self) -> Arc<Greeting> {
        Server::greeting(self)
    }

    fn main(&self) -> Connection {
        Server::main(self)
    }

    fn modern(&self) -> Stateless<'_> {
        Server::modern(self).boxed()
    }

    fn own(&self, initialize: Box<RawValue>) -> BoxFuture<'_, Result<Child, HostingError>> {
        async move {
            let child = Server::own(self, initialize).await?;
            let (connection, greeting, inbound, keep) = child.into_parts();
            Ok(Child {
                connection,
                greeting,
                inbound,
                _keep: keep,
            })
        }
        .boxed()
    }
}
