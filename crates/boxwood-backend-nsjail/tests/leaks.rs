//! What is on the host before the backend starts and after it has shut down: the same.
#![forbid(unsafe_code)]

mod support;

use std::time::Duration;

use boxwood_backend::suite::{LeakCounts, run_leaks};

fn main() {
    let counts = LeakCounts {
        cycles: 100,
        crowd: 40,
        interrupted: 60,
        longest_patience: Duration::from_millis(90),
    };
    run_leaks(support::Nsjail, counts)
}
