//! Removes what nobody has any more.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::place::Places;

/// Removes abandoned imports, and images that were taken away and have no box left. What somebody
/// still holds stays for the next sweep.
pub(super) fn sweep(places: &Places) {
    if let Err(error) = try_sweep(places) {
        tracing::warn!(%error, "the image store could not be swept");
    }
}

fn try_sweep(places: &Places) -> io::Result<()> {
    let leftovers = places.leftovers()?;
    if leftovers.is_empty() {
        return Ok(());
    }
    // Not for long: imports that begin wait for it.
    let guard = places.guard(FlockOperation::LockExclusive)?;
    let mut ours = Vec::new();
    for place in leftovers {
        if let Some(held) = claim(&place)? {
            ours.push((place, held));
        }
    }
    drop(guard);
    for (place, held) in ours {
        remove(&place)?;
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

fn remove(place: &Path) -> io::Result<()> {
    match fs::remove_dir_all(place) {
        // Two sweeps met.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
