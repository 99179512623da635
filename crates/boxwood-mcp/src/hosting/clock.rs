//! How long one start may take. The clock stands still while the server waits for others.

use std::future::Future;
use std::time::Duration;

use boxwood_api::McpPhase;
use tokio::time::Instant;

use super::fault::Fault;

#[derive(Clone, Copy, Debug)]
pub(crate) struct StartClock {
    ends_at: Instant,
    allowed: Duration,
}

impl StartClock {
    pub(crate) fn start(seconds: u64) -> Self {
        // A day is as good as for ever, and leaves the clock's arithmetic alone.
        let allowed = Duration::from_secs(seconds.clamp(1, 24 * 3600));
        Self {
            ends_at: Instant::now() + allowed,
            allowed,
        }
    }

    pub(crate) fn left(&self) -> Duration {
        self.ends_at.saturating_duration_since(Instant::now())
    }

    /// What is not done in time fails with the phase it was in.
    pub(crate) async fn within<T>(
        &self,
        phase: McpPhase,
        work: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        tokio::time::timeout_at(self.ends_at, work)
            .await
            .map_err(|_| self.ran_out(phase))
    }

    /// Waits for others at no cost to the server.
    pub(crate) async fn stopped<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        let since = Instant::now();
        let result = waiting.await;
        self.ends_at += since.elapsed();
        result
    }

    pub(crate) fn ran_out(&self, phase: McpPhase) -> Fault {
        let seconds = self.allowed.as_secs();
        Fault::new(
            phase,
            format!("Connection timeout after {seconds} seconds, in phase `{phase}`"),
        )
        .with_hint(
            "give it more time with `box.startup_timeout_sec`, or look at its log".to_owned(),
        )
    }
}
