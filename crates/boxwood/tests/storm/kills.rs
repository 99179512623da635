//! Nothing but kills.

use crate::aftermath::survive;
use crate::chance::kills;
use crate::house::House;

#[test]
fn a_storm_of_kills_leaves_nothing_behind_and_loses_nothing() {
    survive("kills", &House::new(), async |storm, mut daemon| {
        for _ in 0..kills(100) {
            storm.kill(daemon).await?;
            daemon = storm.next().await?;
        }
        Ok(daemon)
    });
}
