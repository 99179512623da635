//! Whatever happens to a daemon, in whatever order, its sessions are what a simple model says.
//!
//! A daemon here is everything above the backend: sessions, ledger, journals. Under it is the fake host,
//! whose boxes and programs outlive it as real ones do. The daemon is killed in the middle of things, at
//! random turns of its tasks and at the points that matter, and the next one takes over.
//!
//! What must hold after every step: sessions, incarnations, processes and their exits are the model's;
//! the ledger has exactly the boxes that live; nothing else runs or is kept; incarnations grow and never
//! come again; a stale handle is told why; a process's output is its input, no byte lost or doubled.

mod check;
mod daemon;
mod model;
mod observe;
mod perform;
mod plan;
mod scenario;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn config() -> ProptestConfig {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/regressions.txt");
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(path))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sessions_are_what_the_model_says(steps in plan::steps()) {
        scenario::run(&steps).map_err(TestCaseError::fail)?;
    }
}
