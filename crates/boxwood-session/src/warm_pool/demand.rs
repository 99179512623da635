//! How many boxes to prewarm: between one and the maximum of the profile.
//!
//! A request that gets a prewarmed box (a hit) increases the number by one, a request that finds none (a
//! miss) doubles it, and time without requests halves it.

use std::time::Duration;

use tokio::time::Instant;

/// Time without requests after which the number is halved.
const HALVED_AFTER: Duration = Duration::from_secs(30);

pub(super) struct Demand {
    max: usize,
    target: usize,
    /// Time of the last request or halving.
    last_change: Instant,
}

impl Demand {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            target: max.min(1),
            last_change: Instant::now(),
        }
    }

    pub(super) fn target(&self) -> usize {
        self.target
    }

    pub(super) fn record_request(&mut self, now: Instant, hit: bool) {
        let grown = if hit {
            self.target + 1
        } else {
            self.target * 2
        };
        self.target = grown.min(self.max);
        self.last_change = now;
    }

    pub(super) fn time_passed(&mut self, now: Instant) {
        while self.target > 1 && now.duration_since(self.last_change) >= HALVED_AFTER {
            self.target /= 2;
            self.last_change += HALVED_AFTER;
        }
    }

    /// When the number is halved if there are no requests.
    pub(super) fn next_change(&self) -> Option<Instant> {
        (self.target > 1).then(|| self.last_change + HALVED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_requests_up_to_the_maximum() {
        let now = Instant::now();
        let mut demand = Demand::new(6);
        assert_eq!(demand.target(), 1);
        demand.record_request(now, true);
        assert_eq!(demand.target(), 2);
        demand.record_request(now, false);
        assert_eq!(demand.target(), 4);
        demand.record_request(now, false);
        assert_eq!(demand.target(), 6);
        demand.record_request(now, true);
        assert_eq!(demand.target(), 6);
    }

    #[test]
    fn it_shrinks_to_one_without_requests() {
        let now = Instant::now();
        let mut demand = Demand::new(8);
        for _ in 0..4 {
            demand.record_request(now, false);
        }
        assert_eq!(demand.target(), 8);
        demand.time_passed(now + HALVED_AFTER / 2);
        assert_eq!(demand.target(), 8);
        demand.time_passed(now + HALVED_AFTER);
        assert_eq!(demand.target(), 4);
        demand.time_passed(now + HALVED_AFTER * 10);
        assert_eq!(demand.target(), 1);
        assert_eq!(demand.next_change(), None);
    }

    #[test]
    fn a_maximum_of_zero_is_zero() {
        let mut demand = Demand::new(0);
        demand.record_request(Instant::now(), false);
        assert_eq!(demand.target(), 0);
    }
}
