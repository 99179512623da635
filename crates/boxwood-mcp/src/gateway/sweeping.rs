//! One task that takes away what was kept for too long, for as long as there is anything.

use std::sync::{Mutex, PoisonError, Weak};

use tokio::time::{Instant, sleep_until};

/// Things that are kept for a while. Whoever keeps the first of them starts [`sweep`].
pub(crate) trait Swept {
    type Gone;

    /// What is over, and when to look again. Without another time the task ends.
    fn sweep(&mut self, now: Instant) -> (Self::Gone, Option<Instant>);
}

pub(crate) async fn sweep<T: Swept>(kept: Weak<Mutex<T>>) {
    loop {
        let Some(kept) = kept.upgrade() else {
            return;
        };
        let (gone, next) = kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .sweep(Instant::now());
        drop(kept);
        // Outside of the lock: it may end processes.
        drop(gone);
        let Some(next) = next else {
            return;
        };
        sleep_until(next).await;
    }
}
