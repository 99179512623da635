//! Removes abandoned imports and removed images that are no longer in use.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;

use super::store_dir::{StoreDir, if_exists, try_lock};

/// Removes abandoned imports, and removed images without boxes. Directories that are still locked are left
/// for the next cleanup.
pub(super) fn remove(store_dir: &StoreDir) {
    if let Err(error) = try_remove(store_dir) {
        tracing::warn!(%error, "failed to clean up the image store");
    }
}

fn try_remove(store_dir: &StoreDir) -> io::Result<()> {
    let leftovers = store_dir.leftovers()?;
    if leftovers.is_empty() {
        return Ok(());
    }
    // Held briefly: new imports wait for it.
    let guard = store_dir.guard(FlockOperation::LockExclusive)?;
    let mut ours = Vec::new();
    for place in leftovers {
        if let Some(held) = claim(&place)? {
            ours.push((place, held));
        }
    }
    drop(guard);
    for (place, held) in ours {
        boxwood_sys::tree::remove(&place)?;
        drop(held);
    }
    Ok(())
}

fn claim(place: &Path) -> io::Result<Option<File>> {
    let Some(held) = if_exists(File::open(place))? else {
        return Ok(None);
    };
    let is_ours = try_lock(&held, FlockOperation::NonBlockingLockExclusive)?;
    Ok(is_ours.then_some(held))
}
