//! What is on the host and in the engine before the backend starts and after it has shut down: the same.
//!
//! A container takes a second; the smaller numbers find the same leaks.
#![forbid(unsafe_code)]

mod support;

use std::time::Duration;

use boxwood_backend::suite::{LeakCounts, run_leaks};

fn main() {
    let counts = LeakCounts {
        cycles: 30,
        crowd: 10,
        interrupted: 10,
        longest_patience: Duration::from_millis(1500),
    };
    run_leaks(support::Containers, counts)
}
