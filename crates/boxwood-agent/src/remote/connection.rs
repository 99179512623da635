//! The connection that a call uses, and the next one after it is lost.

use boxwood_client::Client;
use tokio::time::{Instant, timeout_at};

use super::failure;
use crate::boxes::{Answer, BoxesError};
use crate::connector::{Connector, Link, State};

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) generation: u64,
}

impl Connector {
    /// Fails at once if the runtime is not available. The first attempt to connect is waited for.
    pub(super) async fn connection(&self, deadline: Instant) -> Answer<Connection> {
        if self.is_closing() {
            return Err(failure::disposed());
        }
        let mut link_state = self.link_state();
        let settled = |link: &Link| !matches!(link.state, State::Connecting);
        let link = match timeout_at(deadline, link_state.wait_for(settled)).await {
            Ok(Ok(link)) => link.clone(),
            // The sender was dropped, or the deadline has passed.
            Ok(Err(_)) | Err(_) => self.link_state().borrow().clone(),
        };
        connection_of(&link)
    }

    /// The connection after one that failed. The same one if a probe shows that it still works.
    pub(super) async fn next_connection(&self, deadline: Instant) -> Answer<Connection> {
        let mut link_state = self.link_state();
        let connected = async {
            self.probe().await;
            let known = |link: &Link| link.is_up() || matches!(link.state, State::Over);
            link_state.wait_for(known).await.map(|link| link.clone())
        };
        let link = match timeout_at(deadline, connected).await {
            Ok(Ok(link)) => link,
            Ok(Err(_)) | Err(_) => self.link_state().borrow().clone(),
        };
        connection_of(&link)
    }

    /// Waits until the connection with this number is known to be lost.
    pub(super) async fn broken(&self, generation: u64) {
        self.wait_for(|link| !link.is_up() || link.generation != generation)
            .await;
    }

    /// Waits for a connection after the one with this number.
    pub(super) async fn reconnected(&self, generation: u64) {
        self.wait_for(|link| link.is_up() && link.generation != generation)
            .await;
    }

    async fn wait_for(&self, condition: impl FnMut(&Link) -> bool) {
        // Without a sender, the channel says nothing about the connection.
        if self.link_state().wait_for(condition).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn connection_of(link: &Link) -> Result<Connection, BoxesError> {
    match &link.state {
        State::Up { client, .. } => Ok(Connection {
            client: Client::clone(client),
            generation: link.generation,
        }),
        State::Down(outage) => Err(failure::down(outage)),
        State::Connecting => Err(failure::connecting()),
        State::Over => Err(failure::disposed()),
    }
}
