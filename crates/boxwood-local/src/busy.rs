//! Work that a shutdown has to wait for, and quiet that the pool waits for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Counts what is under way. Clones count together.
#[derive(Clone)]
pub struct Busy {
    count: watch::Sender<usize>,
}

/// One piece of work; its end is its drop.
pub struct Work {
    count: watch::Sender<usize>,
}

impl Busy {
    pub(crate) fn new() -> Self {
        Self {
            count: watch::channel(0).0,
        }
    }

    pub fn enter(&self) -> Work {
        self.count.send_modify(|count| *count += 1);
        Work {
            count: self.count.clone(),
        }
    }

    /// Resolves when nothing is under way.
    pub async fn idle(&self) {
        // Cannot fail: this very handle keeps the channel open.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

/// Moving a process between cgroups stops every fork of the host until an RCU grace period is over,
/// so blanks are made when nobody has asked for anything for this long.
const QUIET: Duration = Duration::from_millis(12);
/// On a host that is never quiet they are made all the same.
const PATIENCE: Duration = Duration::from_millis(500);

/// When something was last asked of any box.
pub struct Pulse {
    begin: Instant,
    last_micros: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            begin: Instant::now(),
            last_micros: AtomicU64::new(0),
        }
    }

    pub fn beat(&self) {
        self.last_micros.store(self.now_micros(), Ordering::Relaxed);
    }

    pub async fn quiet(&self) {
        let waiting_since = Instant::now();
        while waiting_since.elapsed() < PATIENCE {
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
