//! What the seed's clients rely on, over HTTP against a real daemon and real boxes.

use boxwood_test_support::seed_suite;

use crate::daemon::Daemon;

#[test]
fn the_seeds_own_tests_pass_on_real_boxes() {
    let daemon = Daemon::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(seed_suite::run(daemon.url()));
}
