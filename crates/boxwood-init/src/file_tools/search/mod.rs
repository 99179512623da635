//! Searches a directory tree: `glob` and `grep`. This module holds their deadline and cancellation.

pub(super) mod glob;
pub(super) mod grep;
mod ignore_rules;
mod pattern;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns false once the caller no longer waits for the result.
pub type IsCallerWaiting<'a> = dyn Fn() -> bool + 'a;

pub(in crate::file_tools) struct SearchControl {
    until: Instant,
    ended: AtomicBool,
    /// The result is incomplete.
    partial: AtomicBool,
}

impl SearchControl {
    pub(in crate::file_tools) fn new(time: Duration) -> Self {
        Self {
            until: Instant::now() + time,
            ended: AtomicBool::new(false),
            partial: AtomicBool::new(false),
        }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether the search has ended or its deadline has passed, which makes the result partial.
    pub(in crate::file_tools) fn is_over(&self) -> bool {
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

    /// Like [`Self::is_over`] without reading the clock.
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
