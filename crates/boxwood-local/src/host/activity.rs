//! Tracks running work, for shutdown, and the last request, for prewarming.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Counts running work. Clones share the count.
#[derive(Clone)]
pub struct ActiveWork {
    count: watch::Sender<usize>,
}

/// One piece of running work; dropping it ends it.
pub struct WorkGuard {
    count: watch::Sender<usize>,
}

impl ActiveWork {
    pub(crate) fn new() -> Self {
        Self {
            count: watch::channel(0).0,
        }
    }

    pub fn enter(&self) -> WorkGuard {
        self.count.send_modify(|count| *count += 1);
        WorkGuard {
            count: self.count.clone(),
        }
    }

    /// Resolves when no work is running.
    pub async fn idle(&self) {
        // Cannot fail: `self` keeps the channel open.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

/// Moving a process between cgroups blocks every fork on the host for an RCU grace period, so prewarmed
/// boxes are created only when no request has arrived for this long.
const QUIET: Duration = Duration::from_millis(12);
/// After this long prewarmed boxes are created even on a host that is never idle.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Time of the last request to any box.
pub struct LastActivity {
    begin: Instant,
    last_micros: AtomicU64,
}

impl LastActivity {
    pub(crate) fn new() -> Self {
        Self {
            begin: Instant::now(),
            last_micros: AtomicU64::new(0),
        }
    }

    pub fn touch(&self) {
        self.last_micros.store(self.now_micros(), Ordering::Relaxed);
    }

    pub async fn wait_until_quiet(&self) {
        let waiting_since = Instant::now();
        while waiting_since.elapsed() < MAX_WAIT {
            let last = Duration::from_micros(self.last_micros.load(Ordering::Relaxed));
            let since = Duration::from_micros(self.now_micros()).saturating_sub(last);
            match QUIET.checked_sub(since) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }

    fn now_micros(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
