//! Sends requests, and repeats them after a lost connection if they cannot take effect twice.

use std::future::Future;
use std::time::Duration;

use boxwood_client::{Client, ClientError};
use tokio::time::{Instant, sleep, timeout_at};

use super::Remote;
use super::failure;
use crate::boxes::Answer;

const MAX_ATTEMPTS: u32 = 4;

/// Multiplied by the number of attempts.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The runtime is probed if a response takes longer.
const PROBE_AFTER: Duration = Duration::from_secs(5);

/// Which requests may be repeated.
#[derive(Clone, Copy)]
pub(super) enum Repeat {
    /// Idempotent requests.
    Always,
    /// Only if nothing was sent. The text names what is uncertain otherwise.
    Unsent(&'static str),
}

impl Remote {
    pub(super) async fn request<T, F>(
        &self,
        within: Duration,
        repeat: Repeat,
        request: impl Fn(Client) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (answer, _) = self.request_on(within, repeat, request).await?;
        Ok(answer)
    }

    /// Also returns the number of the connection that was used.
    pub(super) async fn request_on<T, F>(
        &self,
        within: Duration,
        repeat: Repeat,
        request: impl Fn(Client) -> F,
    ) -> Answer<(T, u64)>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let _call = self.connector.begin_call();
        let deadline = Instant::now() + within;
        let mut connection = self.connector.connection(deadline).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let broken = async {
                match repeat {
                    Repeat::Always => self.broken(connection.generation).await,
                    // The response may still arrive, and the request cannot be repeated.
                    Repeat::Unsent(_) => std::future::pending().await,
                }
            };
            let asked = tokio::select! {
                // A response wins over a lost connection.
                biased;
                asked = timeout_at(deadline, request(connection.client.clone())) => asked,
                () = broken => Ok(Err(lost())),
            };
            let error = match asked {
                Ok(Ok(answer)) => return Ok((answer, connection.generation)),
                Ok(Err(error)) => error,
                Err(_) => return Err(failure::late(within)),
            };
            if !error.is_connection_error() || tries >= MAX_ATTEMPTS {
                return Err(failure::of(error));
            }
            connection = if matches!(error, ClientError::Unreachable { .. }) {
                // Nothing was sent, so the call fails if the runtime is not available.
                self.connector.probe().await;
                self.connector.connection(deadline).await?
            } else {
                self.connector.next_connection(deadline).await?
            };
            if let (ClientError::Lost { .. }, Repeat::Unsent(what)) = (&error, repeat) {
                return Err(failure::in_doubt(what));
            }
            sleep(RETRY_DELAY * tries).await;
        }
    }

    /// Waits until the connection is known to be lost, and probes it if that takes long.
    async fn broken(&self, generation: u64) {
        let asking = async {
            sleep(PROBE_AFTER).await;
            self.connector.probe().await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.connector.broken(generation) => {}
            () = asking => {}
        }
    }
}

fn lost() -> ClientError {
    ClientError::Lost {
        operation: "a request".to_owned(),
        source: "the box runtime stopped responding".into(),
    }
}
