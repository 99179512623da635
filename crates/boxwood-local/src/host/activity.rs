//! Tracks running work, for shutdown, and the last request, for prewarming.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::lock;

/// Tracks running work: each piece holds a receiver of this channel. Clones track the same work.
#[derive(Clone)]
pub struct ActiveWork(watch::Sender<()>);

impl ActiveWork {
    pub(crate) fn new() -> Self {
        Self(watch::channel(()).0)
    }

    /// Begins a piece of work, which ends when the receiver is dropped.
    pub fn enter(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    /// Resolves when no work is running.
    pub async fn idle(&self) {
        self.0.closed().await;
    }
}

/// Moving a process between cgroups blocks every fork on the host for an RCU grace period, so prewarmed
/// boxes are created only when no request has arrived for this long.
const QUIET: Duration = Duration::from_millis(12);
/// After this long prewarmed boxes are created even on a host that is never idle.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Time of the last request to any box.
pub struct LastActivity(Mutex<Instant>);

impl LastActivity {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    pub fn touch(&self) {
        *lock(&self.0) = Instant::now();
    }

    pub async fn wait_until_quiet(&self) {
        let waiting_since = Instant::now();
        while waiting_since.elapsed() < MAX_WAIT {
            let last = *lock(&self.0);
            match QUIET.checked_sub(last.elapsed()) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }
}
