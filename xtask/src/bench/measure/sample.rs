//! Measured times, and their percentiles.

use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Default)]
pub(in super::super) struct Samples(Vec<Duration>);

impl From<Vec<Duration>> for Samples {
    fn from(times: Vec<Duration>) -> Self {
        Self(times)
    }
}

impl Samples {
    /// Runs `work` and keeps how long it took.
    pub(in super::super) fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let value = work()?;
        self.0.push(started.elapsed());
        Ok(value)
    }

    pub(in super::super) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Every sample less `floor`, and zero where it is shorter.
    pub(in super::super) fn less(&self, floor: Duration) -> Self {
        let times = self.0.iter().map(|time| time.saturating_sub(floor));
        Self(times.collect())
    }

    pub(in super::super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(in super::super) fn median(&self) -> Duration {
        self.percentile(50)
    }

    pub(super) fn p95(&self) -> Duration {
        self.percentile(95)
    }

    /// The smallest sample that at least `percent` of all samples do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_and_not_averages() {
        let samples = Samples((1..=20).map(Duration::from_millis).collect());
        assert_eq!(samples.median(), Duration::from_millis(10));
        assert_eq!(samples.p95(), Duration::from_millis(19));
    }

    #[test]
    fn a_sample_below_the_floor_is_zero() {
        let samples = Samples([5, 9].map(Duration::from_millis).into());
        let rest = samples.less(Duration::from_millis(6));
        assert_eq!(rest.0, [Duration::ZERO, Duration::from_millis(3)]);
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let samples = Samples(vec![Duration::from_millis(7)]);
        assert_eq!(samples.median(), samples.p95());
    }
}
