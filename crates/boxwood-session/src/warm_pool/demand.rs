//! How many boxes to prewarm: between one and the maximum of the profile. Requests increase the number,
//! misses more than hits; time without requests halves it.

use std::time::Duration;

use tokio::time::Instant;

/// Time without requests after which the number is halved.
const HALVED_AFTER: Duration = Duration::from_secs(30);

pub(super) struct Demand {
    most: usize,
    wanted: usize,
    /// Time of the last request or halving.
    last_change: Instant,
}

impl Demand {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            wanted: most.min(1),
            last_change: Instant::now(),
        }
    }

    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    pub(super) fn asked(&mut self, now: Instant, found: bool) {
        let grown = if found {
            self.wanted + 1
        } else {
            self.wanted * 2
        };
        self.wanted = grown.min(self.most);
        self.last_change = now;
    }

    pub(super) fn time_passed(&mut self, now: Instant) {
        while self.wanted > 1 && now.duration_since(self.last_change) >= HALVED_AFTER {
            self.wanted /= 2;
            self.last_change += HALVED_AFTER;
        }
    }

    /// When the number is halved if there are no requests.
    pub(super) fn next_change(&self) -> Option<Instant> {
        (self.wanted > 1).then(|| self.last_change + HALVED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_requests_up_to_the_maximum() {
        let now = Instant::now();
        let mut demand = Demand::new(6);
        assert_eq!(demand.wanted(), 1);
        demand.asked(now, true);
        assert_eq!(demand.wanted(), 2);
        demand.asked(now, false);
        assert_eq!(demand.wanted(), 4);
        demand.asked(now, false);
        assert_eq!(demand.wanted(), 6);
        demand.asked(now, true);
        assert_eq!(demand.wanted(), 6);
    }

    #[test]
    fn it_shrinks_to_one_without_requests() {
        let now = Instant::now();
        let mut demand = Demand::new(8);
        for _ in 0..4 {
            demand.asked(now, false);
        }
        assert_eq!(demand.wanted(), 8);
        demand.time_passed(now + HALVED_AFTER / 2);
        assert_eq!(demand.wanted(), 8);
        demand.time_passed(now + HALVED_AFTER);
        assert_eq!(demand.wanted(), 4);
        demand.time_passed(now + HALVED_AFTER * 10);
        assert_eq!(demand.wanted(), 1);
        assert_eq!(demand.next_change(), None);
    }

    #[test]
    fn a_maximum_of_zero_is_zero() {
        let mut demand = Demand::new(0);
        demand.asked(Instant::now(), false);
        assert_eq!(demand.wanted(), 0);
    }
}
