//! The clock of each daemon is a day ahead of the previous one, as after a suspend of the machine.
//!
//! The monotonic and boot-time clocks, which timeouts use, are set by a time namespace around the daemon. The wall clock
//! has no namespace: a change would affect the whole host, and no timeout uses it.

use crate::instance::Instance;
use crate::leftovers::survive;
use crate::random::kills;

const DAY_SEC: u64 = 24 * 60 * 60;

#[test]
fn days_that_pass_between_kills_leave_nothing_behind_and_lose_nothing() {
    assert!(
        rustix::process::geteuid().is_root(),
        "only root can create time namespaces; skip this test, or run it as root"
    );
    survive("clock", &Instance::new(), async |storm, mut daemon| {
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
