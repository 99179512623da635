//! What is on the host before the backend starts and after it has shut down: the same.
//!
//! As root the promised numbers: 1,000 cycles, and 200 boxes at once, half of them networked. An
//! ordinary user runs 150 cycles and 24 boxes: every networked one has a `pasta` of its own, and
//! the smaller numbers find the same leaks.
#![forbid(unsafe_code)]

mod support;

use std::time::Duration;

use boxwood_backend::suite::{LeakCounts, Privilege, long_form, machine, run_leaks};

fn main() {
    let (cycles, crowd) = match machine::privilege() {
        Privilege::Root if long_form() => (1000, 200),
        Privilege::Rootless { .. } if long_form() => (150, 24),
        Privilege::Root => (100, 50),
        Privilege::Rootless { .. } => (30, 12),
    };
    let counts = LeakCounts {
        cycles,
        crowd,
        interrupted: 60,
        longest_patience: Duration::from_millis(9),
    };
    run_leaks(support::Native, counts)
}
