//! Removes abandoned imports and removed images that are no longer in use.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::store_dir::StoreDir;

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
    let held = match File::open(place) {
        Ok(held) => held,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(held)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
