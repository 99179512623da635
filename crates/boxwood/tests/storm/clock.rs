//! Every daemon wakes up a day later than the one before, as after a machine's long sleep.
//!
//! The clocks that decide (monotonic, and since boot) are moved by a time namespace around the daemon.
//! The wall clock has no namespace: moving it would affect the whole host, and nothing here is decided by it.

use crate::aftermath::survive;
use crate::chance::kills;
use crate::house::House;

const DAY_SEC: u64 = 24 * 60 * 60;

#[test]
fn days_that_pass_between_kills_leave_nothing_behind_and_lose_nothing() {
    assert!(
        rustix::process::geteuid().is_root(),
        "only root may move clocks; leave this test out, or run it as root"
    );
    survive("clock", &House::new(), async |storm, mut daemon| {
        for day in 1..=kills(20) {
            storm.kill(daemon).await?;
            let later = (day * DAY_SEC).to_string();
            let args = [
                "unshare",
                "--time",
                "--monotonic",
                &later,
                "--boottime",
                &later,
            ];
            daemon = storm.next_by(&args.map(str::to_owned)).await?;
        }
        Ok(daemon)
    });
}
