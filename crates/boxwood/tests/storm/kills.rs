//! The daemon is killed, and nothing else fails.

use crate::instance::Instance;
use crate::leftovers::survive;
use crate::random::kills;

#[test]
fn a_storm_of_kills_leaves_nothing_behind_and_loses_nothing() {
    survive("kills", &Instance::new(), async |storm, mut daemon| {
        for _ in 0..kills(100) {
            storm.kill(daemon).await?;
            daemon = storm.next().await?;
        }
        Ok(daemon)
    });
}
