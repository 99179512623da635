//! When to try again: 3 s after a loss, then twice as long each time, never longer than 60 s.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

/// How patient the connector is. The defaults are what platforms expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two looks at a runtime that is there.
    pub heartbeat: Duration,
    /// For the answer to one of them.
    pub answer: Duration,
    /// For a connection, and for a child to be ready.
    pub connect: Duration,
    /// Before the first try after a loss.
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// For running calls to end when the connection is given up on purpose.
    pub drain: Duration,
    /// For a child to end with its boxes, and again once it was told by a signal.
    pub farewell: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(20),
            answer: Duration::from_secs(5),
            connect: Duration::from_secs(30),
            first_wait: Duration::from_secs(3),
            longest_wait: Duration::from_mins(1),
            drain: Duration::from_secs(10),
            farewell: Duration::from_secs(20),
        }
    }
}

/// The waits, one after the other. Each is shortened by up to a fifth, so that many who lost the same
/// runtime do not all come back at once.
#[derive(Debug)]
pub(super) struct Schedule {
    first: Duration,
    longest: Duration,
    next: Duration,
    chance: u64,
}

impl Schedule {
    pub(super) fn new(timing: &Timing) -> Self {
        Self::with_chance(timing, RandomState::new().build_hasher().finish())
    }

    fn with_chance(timing: &Timing, chance: u64) -> Self {
        Self {
            first: timing.first_wait,
            longest: timing.longest_wait,
            next: timing.first_wait,
            // The generator below stands still at zero.
            chance: chance | 1,
        }
    }

    pub(super) fn next_wait(&mut self) -> Duration {
        let wait = self.next.min(self.longest);
        self.next = (wait * 2).min(self.longest);
        let fifth = wait / 5;
        wait.saturating_sub(fifth.mul_f64(self.fraction()))
    }

    /// It was there for a while: the next loss is a new one.
    pub(super) fn start_over(&mut self) {
        self.next = self.first;
    }

    /// Between 0 and 1, by Marsaglia's xorshift; not used for secrets.
    fn fraction(&mut self) -> f64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let thousandths = u32::try_from(self.chance % 1001).unwrap_or_default();
        f64::from(thousandths) / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_vary_by_a_fifth() {
        let mut seen = std::collections::BTreeSet::new();
        for chance in 0..200 {
            let mut schedule = Schedule::with_chance(&Timing::default(), chance);
            for round in 0..2 {
                for seconds in [3, 6, 12, 24, 48, 60, 60, 60] {
                    let most = Duration::from_secs(seconds);
                    let wait = schedule.next_wait();
                    assert!(wait <= most, "{round}: {wait:?} is more than {most:?}");
                    assert!(wait >= most * 4 / 5, "{round}: {wait:?} of {most:?}");
                    seen.insert(wait);
                }
                schedule.start_over();
            }
        }
        assert!(seen.len() > 1000, "{} different waits", seen.len());
    }
}
