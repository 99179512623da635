//! Decides whether the last measurement of a directory is still good enough.
//!
//! A directory cannot have grown by more than its file system has lost since. Pure: no I/O.

use std::time::{Duration, Instant};

/// Trees of this size are measured in about a millisecond, so every command measures them.
const SMALL_TREE: u64 = 1000;

/// Growth that takes no space (sparse files), or that another program hides by freeing space at the
/// same time, is found by a measurement after this time.
const MAX_AGE: Duration = Duration::from_secs(10);
/// For large trees: routine measurements take at most a twentieth of one CPU.
const MAX_AGE_PER_MEASUREMENT: u32 = 20;

/// How certain an answer has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accuracy {
    /// For the poll: measure only when the directory may be over the limit.
    Poll,
    /// Before and after a command: like the poll, but small trees are always measured.
    Command,
    /// Always measure.
    Exact,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    pub(super) used: u64,
    pub(super) entries: u64,
    pub(super) at: Instant,
    pub(super) took: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Estimate {
    last: Option<Measurement>,
    /// Free bytes of the file system when it was last checked.
    free: u64,
    /// Bytes that it has lost since the last measurement began. Space that is freed is not
    /// subtracted: it may belong to another directory.
    lost: u64,
}

impl Estimate {
    pub(super) fn record_free(&mut self, free: u64) {
        self.lost = self.lost.saturating_add(self.free.saturating_sub(free));
        self.free = free;
    }

    /// `free` is from before the measurement: bytes written during it may or may not be counted.
    pub(super) fn measured(&mut self, measurement: Measurement, free: u64) {
        self.last = Some(measurement);
        self.free = free;
        self.lost = 0;
    }

    /// Returns true if the directory is within the limit for certain, as far as `accuracy` needs it.
    pub(super) fn is_within(&self, limit: u64, accuracy: Accuracy, now: Instant) -> bool {
        let Some(last) = self.last else {
            return false;
        };
        let max_age = MAX_AGE.max(last.took.saturating_mul(MAX_AGE_PER_MEASUREMENT));
        let must_measure = match accuracy {
            Accuracy::Poll => false,
            Accuracy::Command => last.entries <= SMALL_TREE,
            Accuracy::Exact => true,
        };
        !must_measure
            && last.used.saturating_add(self.lost) <= limit
            && now.saturating_duration_since(last.at) < max_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1000;

    fn measured(used: u64, entries: u64) -> (Estimate, Instant) {
        let mut estimate = Estimate::default();
        let at = Instant::now();
        let measurement = Measurement {
            used,
            entries,
            at,
            took: Duration::ZERO,
        };
        estimate.measured(measurement, 5000);
        (estimate, at)
    }

    #[test]
    fn without_a_measurement_nothing_is_within_the_limit() {
        let estimate = Estimate::default();
        assert!(!estimate.is_within(LIMIT, Accuracy::Poll, Instant::now()));
    }

    #[test]
    fn space_that_another_program_frees_hides_no_growth() {
        let (mut estimate, now) = measured(900, SMALL_TREE + 1);
        estimate.record_free(4900);
        assert!(estimate.is_within(LIMIT, Accuracy::Poll, now));
        estimate.record_free(9000);
        estimate.record_free(8999);
        assert!(!estimate.is_within(LIMIT, Accuracy::Poll, now));
    }

    #[test]
    fn commands_measure_small_trees_and_estimate_large_ones() {
        let (small, now) = measured(0, SMALL_TREE);
        assert!(small.is_within(LIMIT, Accuracy::Poll, now));
        assert!(!small.is_within(LIMIT, Accuracy::Command, now));
        let (large, now) = measured(0, SMALL_TREE + 1);
        assert!(large.is_within(LIMIT, Accuracy::Command, now));
        assert!(!large.is_within(LIMIT, Accuracy::Exact, now));
    }

    #[test]
    fn a_measurement_expires() {
        let (estimate, at) = measured(0, SMALL_TREE + 1);
        assert!(!estimate.is_within(LIMIT, Accuracy::Poll, at + MAX_AGE));
    }
}
