//! Waiting for a daemon that went away: it may be restarting.

use std::future::Future;
use std::time::Duration;

use boxwood_api::ErrorCode;
use tokio::time::{Instant, sleep};

use crate::{Client, ClientError};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// For a daemon to come back. A command that can be resumed is not kept for longer either.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Backoff {
    next: Duration,
    until: Instant,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self {
            next: FIRST,
            until: Instant::now() + PATIENCE,
        }
    }

    /// False when it is time to give up.
    pub(crate) async fn wait(&mut self) -> bool {
        if Instant::now() + self.next > self.until {
            return false;
        }
        sleep(self.next).await;
        self.next = (self.next * 2).min(LONGEST);
        true
    }
}

impl ClientError {
    /// Whether it is the connection that failed, and not the request.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. })
    }
}

/// Whether the same request may succeed with the next daemon, or with this one a moment later.
pub(crate) fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Lost { .. } => true,
        ClientError::Refused { code, .. } => {
            matches!(code, ErrorCode::BackendUnavailable | ErrorCode::Capacity)
        }
        ClientError::BadUrl { .. } | ClientError::BadToken | ClientError::Unexpected { .. } => {
            false
        }
    }
}

impl Client {
    /// Asks again for as long as the daemon may be restarting. For questions only: a request that
    /// changes something may have been carried out although its answer was lost.
    pub async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut backoff = Backoff::new();
        loop {
            match ask().await {
                Err(error) if is_passing(&error) => {
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
    async fn patience_ends() {
        let start = Instant::now();
        let mut backoff = Backoff::new();
        let mut tries = 0;
        while backoff.wait().await {
            tries += 1;
        }
        let waited = start.elapsed();
        assert!(
            waited <= PATIENCE && waited + LONGEST > PATIENCE,
            "{waited:?}"
        );
        assert!(tries > 50, "{tries}");
    }
}
