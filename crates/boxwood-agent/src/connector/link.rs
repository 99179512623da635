//! The state of the connection. Every state handles every event, and the final state does not change.

use std::time::Duration;

use boxwood_api::Status;
use boxwood_client::{Client, ClientError};

/// Why the runtime is not there, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub reason: String,
    pub fix: String,
}

impl Outage {
    /// It was there.
    pub(super) fn disconnected(fix: &str) -> Self {
        Self {
            reason: "Disconnected from Box runtime".to_owned(),
            fix: fix.to_owned(),
        }
    }

    /// A try failed.
    pub(super) fn failed(error: &ClientError, fix: &str) -> Self {
        let fix = match error {
            // It answered, and knows best.
            ClientError::Refused { .. } | ClientError::Unexpected { .. } => error.hint(),
            _ => None,
        }
        .unwrap_or_else(|| fix.to_owned());
        Self {
            reason: format!("box runtime connection failed: {}", with_causes(error)),
            fix,
        }
    }

    pub(super) fn refused(why: impl std::fmt::Display, fix: impl Into<String>) -> Self {
        Self {
            reason: format!("box runtime connection failed: {why}"),
            fix: fix.into(),
        }
    }
}

/// An error and what is below it, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// The connection as others see it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) state: State,
    /// Counts connections.
    pub(crate) generation: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    /// No attempt has succeeded or failed yet.
    Connecting,
    Up {
        client: Box<Client>,
        /// As of the last look.
        status: Option<Status>,
    },
    Down(Outage),
    /// Given up on purpose.
    Over,
}

impl Link {
    pub(super) fn new() -> Self {
        Self {
            state: State::Connecting,
            generation: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    pub(super) fn reached(&mut self, client: Client, status: Option<Status>) {
        match self.state {
            State::Connecting | State::Down(_) | State::Up { .. } => {
                self.generation += 1;
                self.state = State::Up {
                    client: Box::new(client),
                    status,
                };
            }
            State::Over => {}
        }
    }

    /// A look at a runtime that is there.
    pub(super) fn seen(&mut self, seen: Option<Status>) {
        match &mut self.state {
            State::Up { status, .. } => {
                if seen.is_some() {
                    *status = seen;
                }
            }
            State::Connecting | State::Down(_) | State::Over => {}
        }
    }

    /// A try failed, or the runtime was lost.
    pub(super) fn failed(&mut self, outage: Outage) {
        match self.state {
            State::Connecting | State::Up { .. } | State::Down(_) => {
                self.state = State::Down(outage);
            }
            State::Over => {}
        }
    }

    pub(super) fn over(&mut self) {
        self.state = State::Over;
    }
}

/// Why a look came to nothing.
pub(super) enum ProbeError {
    Failed(ClientError),
    Late,
}

/// Asks the runtime how it is. One that has too much to do is there.
pub(super) async fn look(client: &Client, within: Duration) -> Result<Option<Status>, ProbeError> {
    match tokio::time::timeout(within, client.status()).await {
        Ok(Ok(status)) => Ok(Some(status)),
        Ok(Err(ClientError::Refused {
            code: boxwood_api::ErrorCode::Capacity,
            ..
        })) => Ok(None),
        Ok(Err(error)) => Err(ProbeError::Failed(error)),
        Err(_) => Err(ProbeError::Late),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new(boxwood_client::Endpoint::local(), None)
    }

    fn outage() -> Outage {
        Outage::disconnected("wait")
    }

    #[test]
    fn every_connection_has_a_number_of_its_own() {
        let mut link = Link::new();
        link.failed(outage());
        assert!(matches!(link.state, State::Down(_)));
        assert_eq!(link.generation, 0);
        link.reached(client(), None);
        assert!(link.is_up() && link.generation == 1);
        link.seen(None);
        assert!(link.is_up() && link.generation == 1);
        link.failed(outage());
        link.reached(client(), None);
        assert_eq!(link.generation, 2);
    }

    #[test]
    fn nothing_comes_after_the_end() {
        let mut link = Link::new();
        link.reached(client(), None);
        link.over();
        link.reached(client(), None);
        link.failed(outage());
        link.seen(None);
        assert!(matches!(link.state, State::Over));
        assert_eq!(link.generation, 1);
    }

    #[test]
    fn what_a_runtime_says_is_the_fix_where_it_says_anything() {
        let refused = ClientError::Refused {
            status: 401,
            code: boxwood_api::ErrorCode::Unauthorized,
            message: "a token is needed".to_owned(),
            hint: None,
        };
        let outage = Outage::failed(&refused, "start it");
        assert_eq!(
            outage.reason,
            "box runtime connection failed: a token is needed"
        );
        assert!(outage.fix.contains("BOXWOOD_TOKEN"), "{}", outage.fix);
        let unreachable = ClientError::Unreachable {
            endpoint: "http://x:1".to_owned(),
            source: "Connection refused".into(),
        };
        let outage = Outage::failed(&unreachable, "start it");
        assert_eq!(
            outage.reason,
            "box runtime connection failed: no daemon answers at http://x:1: Connection refused"
        );
        assert_eq!(outage.fix, "start it");
    }
}
