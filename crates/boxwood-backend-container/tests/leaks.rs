//! The backend leaves nothing on the host or in the engine after it has shut down.
//!
//! The numbers are small because a container takes a second to start; they find the same leaks.
#![forbid(unsafe_code)]

mod support;

use std::time::Duration;

use boxwood_suites::{LeakCounts, long_form, run_leaks};

fn main() {
    let (cycles, crowd, interrupted) = if long_form() { (30, 10, 10) } else { (5, 4, 6) };
    let counts = LeakCounts {
        cycles,
        crowd,
        interrupted,
        longest_timeout: Duration::from_millis(1500),
    };
    run_leaks(support::Containers, counts)
}
