//! What is on the host and in the engine before the backend starts and after it has shut down: the same.
//!
//! A container takes a second; the smaller numbers find the same leaks.
#![forbid(unsafe_code)]

mod support;

use std::time::Duration;

use boxwood_backend::suite::{LeakCounts, long_form, run_leaks};

fn main() {
    let (cycles, crowd, interrupted) = if long_form() { (30, 10, 10) } else { (5, 4, 6) };
    let counts = LeakCounts {
        cycles,
        crowd,
        interrupted,
        longest_patience: Duration::from_millis(1500),
    };
    run_leaks(support::Containers, counts)
}
