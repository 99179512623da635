//! Reproducible random numbers.

use std::time::Duration;

use boxwood_suites::long_form;

/// `SplitMix64`: small, and good enough to choose delays.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// With the seed `BOXWOOD_STORM_SEED` or a new one. The seed is printed, so that a run can be repeated, except for the
    /// timing of the machine.
    pub(crate) fn begin(test: &str) -> Self {
        let seed = number("BOXWOOD_STORM_SEED").unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |now| now.as_secs() ^ u64::from(now.subsec_nanos()))
        });
        println!("{test}: BOXWOOD_STORM_SEED={seed}");
        Self(seed)
    }

    /// An independent generator.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// At least `from`, less than `to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.within(from, to))
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The number of kills: a percentage of `BOXWOOD_STORM_KILLS`, for slower tests.
pub(crate) fn kills(share_percent: u64) -> u64 {
    let usual = if long_form() { 200 } else { 10 };
    (number("BOXWOOD_STORM_KILLS").unwrap_or(usual) * share_percent / 100).max(3)
}

/// The number of sessions: `BOXWOOD_STORM_SESSIONS`.
pub(crate) fn sessions() -> usize {
    let usual = if long_form() { 50 } else { 20 };
    let wanted = number("BOXWOOD_STORM_SESSIONS").unwrap_or(usual);
    usize::try_from(wanted).expect("a number of sessions")
}
