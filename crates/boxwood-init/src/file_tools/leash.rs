//! How long a search may go on, and whether anybody still wants it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tells whether somebody still waits for the answer.
pub type Wanted<'a> = dyn Fn() -> bool + 'a;

pub(super) struct Leash {
    until: Instant,
    ended: AtomicBool,
    /// Something was left out.
    partial: AtomicBool,
}

impl Leash {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            until: Instant::now() + time,
            ended: AtomicBool::new(false),
            partial: AtomicBool::new(false),
        }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether to stop here. Past its time a search is never whole.
    pub(super) fn is_over(&self) -> bool {
        if self.has_ended() {
            return true;
        }
        if Instant::now() < self.until {
            return false;
        }
        self.leave_out();
        self.end();
        true
    }

    /// Whether somebody has seen that it is over; asks no clock.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn leave_out(&self) {
        self.partial.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_partial(&self) -> bool {
        self.partial.load(Ordering::Relaxed)
    }
}
