//! The backend leaves nothing on the host after it has shut down.
//!
//! In its long form as root 1,000 cycles, and 200 boxes at once, half of them with a network. An ordinary user
//! runs 150 cycles and 24 boxes, because every networked one needs its own `pasta`; the smaller numbers find
//! the same leaks.
#![forbid(unsafe_code)]

mod support;

use std::time::Duration;

use boxwood_suites::{LeakCounts, Privilege, long_form, machine, run_leaks};

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
        longest_timeout: Duration::from_millis(9),
    };
    run_leaks(support::Native, counts)
}
