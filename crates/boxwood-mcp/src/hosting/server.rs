//! A server that is connected, for those who call it.

use std::sync::Arc;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;

use super::cache_use::CacheUse;
use super::children::{Children, OwnChild};
use super::hosted::Hosted;
use super::{HostingError, Secrets, ToolFilter};
use crate::wire::{Connection, Era, Greeting};

/// The processes of one run of a server.
pub(crate) struct Live {
    pub(crate) connection: Connection,
    pub(crate) greeting: Arc<Greeting>,
    pub(crate) children: Arc<Children>,
    /// What it runs from is not removed under it.
    pub(crate) install: Option<CacheUse>,
    /// It ran before this connection, and may be in the middle of a call of somebody who is gone.
    pub(crate) is_taken_over: bool,
}

impl Live {
    /// Lets go of all its processes; what becomes of them is for the box to say.
    pub(crate) fn close(&self) {
        self.children.close();
        self.connection.close();
    }
}

/// Cheap to clone and not meant to be kept: after a restart it leads nowhere.
#[derive(Clone)]
pub(crate) struct Server {
    hosted: Arc<Hosted>,
    live: Arc<Live>,
}

impl Server {
    pub(crate) fn new(hosted: Arc<Hosted>, live: Arc<Live>) -> Self {
        Self { hosted, live }
    }

    pub(crate) fn name(&self) -> &McpServerName {
        &self.hosted.name
    }

    /// As it is now: an edit of it needs no restart.
    pub(crate) fn filter(&self) -> ToolFilter {
        self.hosted.filter()
    }

    pub(crate) fn secrets(&self) -> Arc<Secrets> {
        self.hosted.secrets()
    }

    pub(crate) fn greeting(&self) -> Arc<Greeting> {
        Arc::clone(&self.live.greeting)
    }

    pub(crate) fn main(&self) -> Connection {
        self.live.connection.clone()
    }

    /// A process that speaks the modern protocol, where the server knows it.
    pub(crate) async fn modern(&self) -> Result<Option<(Connection, Arc<Greeting>)>, HostingError> {
        if self.live.greeting.era == Era::Modern {
            return Ok(Some((self.main(), self.greeting())));
        }
        self.live.children.modern().await
    }

    /// A process for one client alone, greeted in its words. Dropping it stops it.
    pub(crate) async fn own(
        &self,
        initialize_params: Box<RawValue>,
    ) -> Result<OwnChild, HostingError> {
        self.live.children.own(initialize_params).await
    }
}
