//! Retries while a daemon may be restarting.

use std::future::Future;
use std::time::Duration;

use boxwood_api::ErrorCode;
use tokio::time::{Instant, sleep};

use crate::{Client, ClientError, Result};

const MIN_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(1);

/// How long to wait for a daemon. Resumable commands are not kept longer either.
const RETRY_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Backoff {
    next: Duration,
    deadline: Instant,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self {
            next: MIN_DELAY,
            deadline: Instant::now() + RETRY_TIMEOUT,
        }
    }

    /// Returns false if the time is over.
    pub(crate) async fn wait(&mut self) -> bool {
        if Instant::now() + self.next > self.deadline {
            return false;
        }
        sleep(self.next).await;
        self.next = (self.next * 2).min(MAX_DELAY);
        true
    }
}

impl ClientError {
    /// Whether the connection failed, rather than the request.
    pub fn is_connection_error(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. })
    }
}

/// Whether a retry may succeed, with this daemon or the next one.
pub(crate) fn is_transient(error: &ClientError) -> bool {
    let may_be_restarting = matches!(
        error,
        ClientError::Refused {
            code: ErrorCode::BackendUnavailable | ErrorCode::Capacity,
            ..
        }
    );
    may_be_restarting || error.is_connection_error()
}

impl Client {
    /// Retries while the daemon may be restarting. Only for requests without side effects: a
    /// request may have been executed although its response was lost.
    pub async fn with_retries<T, F>(&self, request: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::new();
        loop {
            match request().await {
                Err(error) if is_transient(&error) => {
                    if !backoff.wait().await {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retries_end_after_a_minute() {
        let start = Instant::now();
        let mut backoff = Backoff::new();
        let mut attempts = 0;
        while backoff.wait().await {
            attempts += 1;
        }
        let waited = start.elapsed();
        assert!(
            waited <= RETRY_TIMEOUT && waited + MAX_DELAY > RETRY_TIMEOUT,
            "{waited:?}"
        );
        assert!(attempts > 50, "{attempts}");
    }
}
