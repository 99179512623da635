//! Limits the bytes in memory: bodies that are read, output that is kept, responses that are sent.
//!
//! New work is refused when the budget is used up. Running work continues, because it has limits of its
//! own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Busy;
use crate::{Result, SessionError};

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

    /// An empty reservation.
    pub fn hold(&self) -> Held {
        Held {
            budget: self.clone(),
            bytes: 0,
        }
    }

    /// Fails if the budget is used up.
    pub fn check(&self) -> Result<()> {
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

    /// Number of refusals.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Counts a refusal.
    pub fn refuse(&self) -> SessionError {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        SessionError::Busy(Busy::Bytes {
            limit: self.0.limit,
        })
    }
}

/// Bytes of the budget; released when dropped.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    bytes: usize,
}

impl Held {
    /// For new work: fails if the budget is used up.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        let Inner { used, limit, .. } = &*self.budget.0;
        let grown = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| used <= limit)
        });
        grown.map_err(|_| self.budget.refuse())?;
        self.bytes += bytes;
        Ok(())
    }

    /// For running work: never fails.
    pub fn count(&mut self, bytes: usize) {
        self.budget.0.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Sets the total.
    pub fn set(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.count(bytes - self.bytes);
        } else {
            let released = self.bytes - bytes;
            self.budget.0.used.fetch_sub(released, Ordering::Relaxed);
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
    fn new_work_is_refused_while_running_work_continues() {
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
        running.set(155);
        assert_eq!(budget.used(), 155);
        assert_eq!(budget.refused(), 2);
        drop((running, new));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn sums_that_overflow_are_refused() {
        let budget = Budget::new(usize::MAX);
        let mut held = budget.hold();
        assert!(held.take(1).is_ok());
        assert!(held.take(usize::MAX).is_err());
        assert_eq!(held.bytes(), 1);
    }
}
