//! The HTTP tests of LangBot Box with a real daemon and real boxes.

use boxwood_test_support::langbot_box_suite;

use crate::support::daemon::Daemon;

#[test]
fn the_tests_of_langbot_box_pass_on_real_boxes() {
    let daemon = Daemon::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(langbot_box_suite::run(daemon.url()));
}
