//! The seed system's own tests, as far as they need no real box.

use boxwood_test_support::seed_suite;

use crate::api::Api;

#[tokio::test]
async fn the_seeds_tests_pass() {
    let api = Api::start().await;
    seed_suite::run_portable(&format!("{}/", api.daemon.url())).await;
    assert!(api.backend.boxes().is_empty());
}
