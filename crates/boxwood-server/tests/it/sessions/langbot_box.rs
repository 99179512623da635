//! The tests of LangBot Box that need no real box.

use boxwood_test_support::langbot_box_suite;

use crate::api::Api;

#[tokio::test]
async fn the_tests_of_langbot_box_pass() {
    let api = Api::start().await;
    langbot_box_suite::run_portable(&format!("{}/", api.daemon.url())).await;
    assert!(api.backend.boxes().is_empty());
}
