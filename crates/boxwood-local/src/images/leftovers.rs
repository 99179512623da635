//! Cleans up the image store.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;

use super::store_dir::{StoreDir, if_exists, try_lock};

/// Removes the directories of abandoned imports and of removed images that no box uses. Directories that are
/// still locked, by an import or a box, are left for the next cleanup.
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
    let mut claimed = Vec::new();
    for directory in leftovers {
        if let Some(lock) = claim(&directory)? {
            claimed.push((directory, lock));
        }
    }
    drop(guard);
    for (directory, lock) in claimed {
        boxwood_sys::tree::remove(&directory)?;
        drop(lock);
    }
    Ok(())
}

fn claim(directory: &Path) -> io::Result<Option<File>> {
    let Some(lock) = if_exists(File::open(directory))? else {
        return Ok(None);
    };
    let is_locked = try_lock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(is_locked.then_some(lock))
}
