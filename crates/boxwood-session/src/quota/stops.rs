//! How often everything in one box was ended because of what was written.
//!
//! Comes in: stops as they begin and end. Goes out: for each program, whether one of them met it. Never
//! here: a list of programs. One that is just beginning is on none, and most often ended all the same.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::activity::lock;

/// Who was ended by a stop is known to have ended by then. Who began amid one and was not met by it ends
/// later, of something else.
const AFTERMATH: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Stops {
    begun: AtomicU64,
    over: AtomicU64,
    last: Mutex<Option<Instant>>,
}

/// The moment before a program began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(u64);

/// While everything is being ended.
pub(super) struct Stopping<'a>(&'a Stops);

impl Stops {
    pub(crate) fn before(&self) -> Before {
        Before(self.over.load(Ordering::Acquire))
    }

    /// Whether one that was under way then, or began since, can be why a program has ended just now.
    pub(crate) fn met(&self, before: Before) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        let is_over = begun == self.over.load(Ordering::Acquire);
        let is_recent = || lock(&self.last).is_some_and(|last| last.elapsed() < AFTERMATH);
        begun != before.0 && (!is_over || is_recent())
    }

    /// Said before anything is ended: an end may be seen before its cause is over.
    pub(super) fn begin(&self) -> Stopping<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        Stopping(self)
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        *lock(&self.0.last) = Some(Instant::now());
        self.0.over.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stop_meets_who_began_before_its_end_and_nobody_else() {
        let stops = Stops::default();
        let early = stops.before();
        assert!(!stops.met(early));
        let stopping = stops.begin();
        let amid = stops.before();
        assert!(stops.met(early) && stops.met(amid));
        drop(stopping);
        let late = stops.before();
        assert!(stops.met(early) && stops.met(amid));
        assert!(!stops.met(late));
        // It went on, and ended of something else.
        tokio::time::advance(AFTERMATH).await;
        assert!(!stops.met(early) && !stops.met(amid));
    }
}
