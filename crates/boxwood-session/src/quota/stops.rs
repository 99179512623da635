//! How often everything in one box was ended because of what was written.
//!
//! Comes in: stops as they begin and end. Goes out: for each program, whether one of them met it. Never
//! here: a list of programs. One that is just beginning is on none, and is ended all the same.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Stops {
    begun: AtomicU64,
    over: AtomicU64,
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

    /// Whether one was under way then, or began since.
    pub(crate) fn any_since(&self, before: Before) -> bool {
        self.begun.load(Ordering::Acquire) != before.0
    }

    /// Said before anything is ended: an end may be seen before its cause is over.
    pub(super) fn begin(&self) -> Stopping<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        Stopping(self)
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_meets_who_began_before_its_end_and_nobody_else() {
        let stops = Stops::default();
        let early = stops.before();
        assert!(!stops.any_since(early));
        let stopping = stops.begin();
        let amid = stops.before();
        drop(stopping);
        let late = stops.before();
        assert!(stops.any_since(early) && stops.any_since(amid));
        assert!(!stops.any_since(late));
    }
}
