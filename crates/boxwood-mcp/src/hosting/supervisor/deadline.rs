//! Time limit of one start. Waiting for other servers does not count.

use std::future::Future;
use std::time::Duration;

use boxwood_agent::Answer;
use boxwood_api::McpPhase;
use tokio::time::Instant;

use super::fault::Fault;

#[derive(Clone, Copy, Debug)]
pub(crate) struct StartClock {
    ends_at: Instant,
    timeout: Duration,
}

impl StartClock {
    pub(crate) fn start(seconds: u64) -> Self {
        // The upper bound keeps the arithmetic from overflowing.
        let timeout = Duration::from_secs(seconds.clamp(1, 24 * 3600));
        Self {
            ends_at: Instant::now() + timeout,
            timeout,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.ends_at.saturating_duration_since(Instant::now())
    }

    /// Fails with `phase` when the time is over.
    pub(crate) async fn within<T>(
        &self,
        phase: McpPhase,
        work: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        tokio::time::timeout_at(self.ends_at, work)
            .await
            .map_err(|_| self.timed_out(phase))
    }

    /// Waits for a call of the runtime.
    pub(crate) async fn call<T>(
        &self,
        phase: McpPhase,
        call: impl Future<Output = Answer<T>>,
    ) -> Result<T, Fault> {
        let answer = self.within(phase, call).await?;
        answer.map_err(|error| Fault::from_runtime(phase, error))
    }

    /// Runs `waiting` without counting its time.
    pub(crate) async fn paused<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let result = waiting.await;
        self.ends_at += began.elapsed();
        result
    }

    pub(crate) fn timed_out(&self, phase: McpPhase) -> Fault {
        let seconds = self.timeout.as_secs();
        Fault::new(
            phase,
            format!("Connection timeout after {seconds} seconds, in phase `{phase}`"),
        )
        .with_hint("raise `box.startup_timeout_sec`, or check the server's log".to_owned())
    }
}
