//! How much a workspace holds, and how much it may hold over its quota on this host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) const MIB: u64 = 1024 * 1024;
/// How far over its quota a box may get where the watcher waits for its turn. Programs that are not
/// stopped write until the disk is full.
const LATE: u64 = 1024 * MIB;

/// The documented bound where it holds, otherwise [`LATE`].
pub(crate) fn slack_here(quota_mb: u64) -> u64 {
    if watcher_runs_first() {
        documented_slack(quota_mb)
    } else {
        LATE
    }
}

/// Whether the daemon's watcher may have a real-time priority. Without it the watcher waits behind the
/// programs that write, and the documented bound does not hold.
fn watcher_runs_first() -> bool {
    let asked = std::thread::spawn(|| boxwood_sys::scheduling::run_before_others().is_ok());
    asked.join().is_ok_and(|allowed| allowed)
}

pub(crate) fn documented_slack(quota_mb: u64) -> u64 {
    (64 * MIB).max(quota_mb * MIB / 10)
}

/// Counted by other code than the product's own.
pub(crate) fn used(directory: &Path) -> anyhow::Result<u64> {
    let (mut lengths, mut taken) = (0, 0);
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let facts = fs::symlink_metadata(entry.path())?;
            taken += facts.blocks() * 512;
            if facts.is_dir() {
                left.push(entry.path());
            } else {
                lengths += facts.len();
            }
        }
    }
    Ok(taken.max(lengths))
}
