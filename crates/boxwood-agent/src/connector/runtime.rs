//! The two kinds of runtime that a connection can lead to.

use std::fmt;
use std::time::Duration;

use boxwood_api::Status;
use boxwood_client::{Client, Endpoint, Token};

use super::child::Child;
use super::link::{Outage, ProbeError, look};
use super::schedule::Timing;

pub(super) enum Runtime {
    /// A runtime that this process did not start.
    Elsewhere {
        endpoint: Endpoint,
        token: Option<Token>,
    },
    /// Ours: started when it is not there, ended when it is not wanted any more.
    Child(Box<Child>),
}

impl Runtime {
    /// A new connection to it. Old ones may be dead without knowing it, so none is used again.
    pub(super) async fn reach(
        &mut self,
        timing: &Timing,
    ) -> Result<(Client, Option<Status>), Outage> {
        match self {
            Self::Elsewhere { endpoint, token } => {
                let client = Client::new(endpoint.clone(), token.clone());
                match look(&client, timing.connect).await {
                    Ok(status) => Ok((client, status)),
                    Err(ProbeError::Failed(error)) => {
                        Err(Outage::failed(&error, &start_it(endpoint)))
                    }
                    Err(ProbeError::Late) => Err(timed_out(endpoint)),
                }
            }
            Self::Child(child) => child.reach(timing.answer).await,
        }
    }

    /// It did not answer in all the time there was.
    pub(super) async fn give_up(&mut self) -> Outage {
        match self {
            Self::Elsewhere { endpoint, .. } => timed_out(endpoint),
            Self::Child(child) => child.give_up().await,
        }
    }

    /// Waits for a child to exit. Never returns for a runtime that this process did not start.
    pub(super) async fn ended(&mut self) -> String {
        match self {
            Self::Elsewhere { .. } => std::future::pending().await,
            Self::Child(child) => child.ended().await,
        }
    }

    /// How to fix an unavailable runtime.
    pub(super) fn fix(&self) -> String {
        match self {
            Self::Elsewhere { endpoint, .. } => start_it(endpoint),
            Self::Child(child) => child.fix(),
        }
    }

    /// Takes a child, and its boxes with it, out of the world.
    pub(super) async fn end(self, farewell: Duration) {
        match self {
            Self::Elsewhere { .. } => {}
            Self::Child(child) => child.end(farewell).await,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere { endpoint, .. } => endpoint.fmt(f),
            Self::Child(_) => f.write_str("child"),
        }
    }
}

fn start_it(endpoint: &Endpoint) -> String {
    format!(
        "start `boxwood serve` so that it listens at {endpoint}, or correct box.runtime.endpoint; the connection is tried again by itself"
    )
}

fn timed_out(endpoint: &Endpoint) -> Outage {
    Outage {
        reason: format!("box runtime connection timed out ({endpoint})"),
        fix: format!(
            "something at {endpoint} takes connections and does not answer: see to it, or correct box.runtime.endpoint; the connection is tried again by itself"
        ),
    }
}
