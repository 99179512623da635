//! The suites that every backend has to pass.
//!
//! - A new behaviour that all backends share: a case in `conformance/`, in the file of its topic.
//! - A new attack that must fail: a case in `escape/`, with its program in `escape/attacks/`.
//! - Something that could be left on the host: a check in `leaks/`.
//! - Launching backends, starting boxes and observing the host: `harness/`.
//!
//! No isolation technology is named here. What one host cannot provide is a committed list beside the tests
//! of a backend, and a case that needs it asserts that the box's label says so.
#![forbid(unsafe_code)]

mod conformance;
mod escape;
mod harness;
mod leaks;
mod network_stress;

pub use escape::Report;
pub use harness::box_spec::BoxSpec;
pub use harness::case::{Case, run_case};
pub use harness::fixture::Fixture;
pub use harness::host::{
    Feature, Host, ImagesFrom, MissingFeature, MissingMechanism, Privilege, RootFrom,
};
pub use harness::test_box::{CommandOutput, RunningCommand, TestBox};
pub use harness::{
    BackendSetup, StateDirs, failed, long_form, machine, run_conformance, run_escape, run_trials,
    runtime,
};
pub use leaks::footprint::{Footprint, settle};
pub use leaks::{LeakCounts, run_leaks};
pub use network_stress::run_network_stress;

/// Behaviour: what every box does the same way.
pub fn conformance() -> Vec<Case> {
    conformance::all()
}

/// Attacks from inside a box, each named by what must not work.
pub fn escape() -> Vec<Case> {
    escape::all()
}
