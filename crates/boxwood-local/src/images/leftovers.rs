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
    let mut ours = Vec::new();
    for directory in leftovers {
        if let Some(held) = claim(&directory)? {
            ours.push((directory, held));
        }
    }
    drop(guard);
    for (directory, held) in ours {
        boxwood_sys::tree::remove(&directory)?;
        drop(held);
    }
    Ok(())
}

fn claim(directory: &Path) -> io::Result<Option<File>> {
    let Some(held) = if_exists(File::open(directory))? else {
        return Ok(None);
    };
    let is_ours = try_lock(&held, FlockOperation::NonBlockingLockExclusive)?;
    Ok(is_ours.then_some(held))
}
