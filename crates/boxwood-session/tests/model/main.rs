//! Property test: after any sequence of requests, crashes and restarts, the sessions of a daemon match a simple
//! model.
//!
//! A daemon in this test is everything above the backend: sessions, ledger, journals. The backend is the fake host,
//! whose boxes and programs outlive a daemon as real ones do. The daemon is killed during operations, after a random
//! number of task turns or at named points, and the next one adopts its boxes.
//!
//! Invariants after every step: sessions, incarnations, processes and exit codes equal those of the model; the
//! ledger has exactly the running boxes; no other program runs or is kept; incarnations increase and are not
//! reused; the error for a stale handle has the reason; a process echoes its input without lost or repeated bytes.

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
    fn sessions_match_the_model(steps in plan::steps()) {
        scenario::run(&steps).map_err(TestCaseError::fail)?;
    }
}
