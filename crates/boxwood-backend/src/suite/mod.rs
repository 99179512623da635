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
mod growing;
mod harness;
mod held;
mod host;
mod images;
mod leaks;
pub mod machine;
mod matrix;
mod network_stress;
mod outside;
mod succession;
mod wish;

pub use attack::Report;
pub use bench::Bench;
pub use case::{Case, run_case};
pub use footprint::{Footprint, settle};
pub use harness::{
    Places, Subject, conclude, failed, long_form, run_conformance, run_escape, runtime,
};
pub use held::{HeldBox, Ran, Running};
pub use host::{Absence, Host, ImagesFrom, NotOffered, Offer, Privilege, RootFrom};
pub use leaks::{LeakCounts, run_leaks};
pub use network_stress::run_network_stress;
pub use wish::Wish;

/// Behaviour: what every box does the same way.
pub fn conformance() -> Vec<Case> {
    conformance::all()
}

/// What is true of a box after its daemon has gone and another has come.
pub(crate) fn adoption() -> Vec<succession::Scenario> {
    conformance::adoption()
}

/// Attacks from inside a box, each named by what must not work.
pub fn escape() -> Vec<Case> {
    escape::all()
}
