//! The backend leaves nothing on the host after it has shut down.
#![forbid(unsafe_code)]

mod support;

use std::time::Duration;

use boxwood_suites::{LeakCounts, long_form, run_leaks};

fn main() {
    let (cycles, crowd, interrupted) = if long_form() {
        (100, 40, 60)
    } else {
        (20, 10, 30)
    };
    let counts = LeakCounts {
        cycles,
        crowd,
        interrupted,
        longest_timeout: Duration::from_millis(90),
    };
    run_leaks(support::Nsjail, counts)
}
