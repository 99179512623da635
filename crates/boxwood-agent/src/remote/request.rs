//! Sends requests, and repeats idempotent ones after a lost connection.

use std::future::Future;
use std::time::Duration;

use boxwood_client::ClientError;
use tokio::time::{Instant, sleep, timeout_at};

use super::Remote;
use super::failure;
use crate::boxes::Answer;

/// A request is not repeated after more losses of the connection: it may be their cause.
const MAX_LOSSES: u32 = 3;

const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Whether a request is repeated after a lost connection.
#[derive(Clone, Copy)]
pub(super) enum Repeat {
    /// Idempotent requests.
    Always,
    /// The text names the effect that the request may or may not have had.
    Never(&'static str),
}

impl Remote {
    pub(super) async fn request<T, F>(
        &self,
        within: Duration,
        repeat: Repeat,
        request: impl Fn() -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        if self.calls.is_closed() {
            return Err(failure::disposed());
        }
        let _call = self.calls.token();
        let deadline = Instant::now() + within;
        let mut losses = 0;
        loop {
            let error = match timeout_at(deadline, request()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) => return Err(failure::late(within)),
            };
            match (&error, repeat) {
                (ClientError::Lost { .. }, Repeat::Never(effect)) => {
                    return Err(failure::uncertain(effect));
                }
                (ClientError::Lost { .. }, Repeat::Always) if losses < MAX_LOSSES => losses += 1,
                // The daemon is probably restarting.
                (ClientError::Unreachable { .. }, _) if losses > 0 => {}
                _ => return Err(failure::of(error)),
            }
            if Instant::now() + RETRY_DELAY >= deadline {
                return Err(failure::of(error));
            }
            sleep(RETRY_DELAY).await;
        }
    }
}
