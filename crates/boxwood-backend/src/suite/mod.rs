//! The suites that prove a backend.
//!
//! Comes in: a [`Bench`] (a backend, and what its host is expected to lack). Goes out: named
//! [`Case`]s, each passed or failed with words. Never here: the name of an isolation technology.
//! Every backend runs the same cases; what one host cannot give is a committed list beside that
//! backend's tests, and a case whose mechanism stands on it asserts that the label says so.

mod attack;
mod bench;
mod case;
mod conformance;
mod escape;
mod footprint;
mod held;
mod host;
mod outside;
mod wish;

pub use attack::Report;
pub use bench::Bench;
pub use case::{Case, run_case};
pub use footprint::{Footprint, settle};
pub use held::{HeldBox, Ran, Running};
pub use host::{Absence, Host, Privilege};
pub use wish::Wish;

/// Behaviour: what every box does the same way.
pub fn conformance() -> Vec<Case> {
    conformance::all()
}

/// Attacks from inside a box, each named by what must not work.
pub fn escape() -> Vec<Case> {
    escape::all()
}
