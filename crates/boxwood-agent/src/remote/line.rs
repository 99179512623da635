//! How a call gets to its runtime, now and after the connection broke.

use boxwood_client::{Client, Endpoint};
use tokio::time::{Instant, timeout_at};

use super::failure;
use crate::boxes::{Answer, BoxesError};
use crate::connector::{Connector, Link, State, UnderWay};

#[derive(Clone)]
pub(super) enum Reach {
    Always(Box<Client>),
    Kept(Connector),
}

/// One connection, as long as it lasts.
pub(super) struct Line {
    pub(super) client: Client,
    pub(super) generation: u64,
}

impl Reach {
    pub(super) fn shares_filesystem(&self) -> bool {
        match self {
            Self::Always(client) => matches!(client.endpoint(), Endpoint::Unix { .. }),
            Self::Kept(connector) => connector.shares_filesystem(),
        }
    }

    /// Held while a call is under way, so that nobody cuts it off without need.
    pub(super) fn begin_call(&self) -> Option<UnderWay> {
        match self {
            Self::Always(_) => None,
            Self::Kept(connector) => Some(connector.begin_call()),
        }
    }

    /// Refused at once where the runtime is not there. The very first try is waited for.
    pub(super) async fn line(&self, deadline: Instant) -> Answer<Line> {
        let connector = match self {
            Self::Always(client) => return Ok(fixed(client)),
            Self::Kept(connector) => connector,
        };
        if connector.is_closing() {
            return Err(failure::disposed());
        }
        let mut board = connector.board();
        let settled = |link: &Link| !matches!(link.state, State::Connecting);
        let link = match timeout_at(deadline, board.wait_for(settled)).await {
            Ok(Ok(link)) => link.clone(),
            // Nobody writes on it any more, or it stays as it is for too long.
            Ok(Err(_)) | Err(_) => connector.board().borrow().clone(),
        };
        line_of(&link)
    }

    /// Has the runtime looked at, and waits until it is known whether it is there.
    pub(super) async fn suspect(&self) {
        if let Self::Kept(connector) = self {
            connector.suspect().await;
        }
    }

    /// The connection after the one that failed. Where the runtime turns out to be there, that is the
    /// same one.
    pub(super) async fn next_line(&self, deadline: Instant) -> Answer<Line> {
        let connector = match self {
            Self::Always(client) => return Ok(fixed(client)),
            Self::Kept(connector) => connector,
        };
        let mut board = connector.board();
        let there = async {
            connector.suspect().await;
            let known = |link: &Link| link.is_up() || matches!(link.state, State::Over);
            board.wait_for(known).await.map(|link| link.clone())
        };
        let link = match timeout_at(deadline, there).await {
            Ok(Ok(link)) => link,
            Ok(Err(_)) | Err(_) => connector.board().borrow().clone(),
        };
        line_of(&link)
    }

    /// Waits until the connection of that number is known to be lost.
    pub(super) async fn broken(&self, generation: u64) {
        let Self::Kept(connector) = self else {
            return std::future::pending().await;
        };
        let broken = |link: &Link| !link.is_up() || link.generation != generation;
        // A board that nobody writes on any more says nothing about the connection.
        if connector.board().wait_for(broken).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until there is a connection after the one of that number.
    pub(super) async fn renewed(&self, generation: u64) {
        let Self::Kept(connector) = self else {
            return std::future::pending().await;
        };
        let renewed = |link: &Link| link.is_up() && link.generation != generation;
        if connector.board().wait_for(renewed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether another connection may follow one that broke.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

fn fixed(client: &Client) -> Line {
    Line {
        client: client.clone(),
        generation: 0,
    }
}

fn line_of(link: &Link) -> Result<Line, BoxesError> {
    match &link.state {
        State::Up { client, .. } => Ok(Line {
            client: Client::clone(client),
            generation: link.generation,
        }),
        State::Down(outage) => Err(failure::down(outage)),
        State::Connecting => Err(failure::connecting()),
        State::Over => Err(failure::disposed()),
    }
}
