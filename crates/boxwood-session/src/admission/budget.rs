//! Bytes that are in memory on somebody's behalf: bodies being read, output being kept, answers
//! being sent.
//!
//! New work is refused when the budget is used up. Work that runs goes on: what it may keep is bounded
//! by itself, and so is how much of it there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Busy;
use crate::SessionError;

#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            used: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Nothing yet.
    pub fn hold(&self) -> Held {
        Held {
            budget: self.clone(),
            bytes: 0,
        }
    }

    /// Whether new work may begin.
    pub fn check(&self) -> Result<(), SessionError> {
        if self.used() < self.0.limit {
            Ok(())
        } else {
            Err(self.refuse())
        }
    }

    pub fn limit(&self) -> usize {
        self.0.limit
    }

    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// How often somebody was told to come back later.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// For whoever may not have more, and is counted as told so.
    pub fn refuse(&self) -> SessionError {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        SessionError::Busy(Busy::Bytes {
            limit: self.0.limit,
        })
    }

    fn grow(&self, bytes: usize, most: usize) -> bool {
        self.0
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= most)
            })
            .is_ok()
    }
}

/// Bytes of the budget; given back when dropped.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    bytes: usize,
}

impl Held {
    /// For new work: refused when the budget has no room for them.
    pub fn take(&mut self, bytes: usize) -> Result<(), SessionError> {
        if self.budget.grow(bytes, self.budget.0.limit) {
            self.bytes += bytes;
            Ok(())
        } else {
            Err(self.budget.refuse())
        }
    }

    /// For work that runs: what it keeps is its own, and only what comes after it is refused.
    pub fn count(&mut self, bytes: usize) {
        self.budget.0.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// So much in all, if it is more than so far.
    pub fn grow_to(&mut self, bytes: usize) {
        self.count(bytes.saturating_sub(self.bytes));
    }

    /// So much in all, whatever it was.
    pub fn set(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.count(bytes - self.bytes);
        } else {
            let less = self.bytes - bytes;
            self.budget.0.used.fetch_sub(less, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }

    pub fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.budget.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_work_is_refused_where_running_work_goes_on() {
        let budget = Budget::new(100);
        let mut running = budget.hold();
        assert!(running.take(90).is_ok());
        let mut new = budget.hold();
        assert!(matches!(
            new.take(11),
            Err(SessionError::Busy(Busy::Bytes { limit: 100 }))
        ));
        assert!(budget.check().is_ok());
        running.count(60);
        assert!(budget.check().is_err());
        running.grow_to(155);
        running.grow_to(20);
        assert_eq!(budget.used(), 155);
        assert_eq!(budget.refused(), 2);
        drop((running, new));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn sums_that_no_machine_has_are_refused_like_others() {
        let budget = Budget::new(usize::MAX);
        let mut held = budget.hold();
        assert!(held.take(1).is_ok());
        assert!(held.take(usize::MAX).is_err());
        assert_eq!(held.bytes(), 1);
    }
}
