//! A private directory in the store where things are made before they appear, and unmade after
//! they have gone.
//!
//! It lies in the store's root, so that a rename into place is one step on one file system, and
//! its name is one that listings pass over. A lock on the open directory says that somebody is
//! using it; what a crash left behind has no lock and is removed by the next one who comes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::beneath::{self, Links};
use crate::removal;

pub(crate) const PREFIX: &str = ".boxwood-staging-";

/// A directory younger than this may belong to somebody who has not locked it yet.
const STALE_AFTER: Duration = Duration::from_mins(1);

/// For the removal of what is in it: the whole store waits.
const REMOVED_WITHIN: Duration = Duration::from_secs(10);
/// The same for what another left behind, of which nobody expects that it is gone now.
const LEFTOVER_WITHIN: Duration = Duration::from_secs(1);

/// Removed with everything in it when dropped.
#[derive(Debug)]
pub(crate) struct Staging {
    root: OwnedFd,
    dir: OwnedFd,
    name: String,
}

impl Staging {
    pub(crate) fn begin(root: BorrowedFd<'_>) -> io::Result<Self> {
        remove_stale(root);
        let root = root.try_clone_to_owned()?;
        let name = format!("{PREFIX}{}", random_word()?);
        rustix::fs::mkdirat(&root, &name, Mode::from_raw_mode(0o700))?;
        let dir = beneath::open_dir(root.as_fd(), Path::new(&name), Links::Never)?;
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { root, dir, name })
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Takes an entry of some directory away; it is gone with the staging directory.
    pub(crate) fn take_away(&self, from: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
        let target = format!("gone-{}", random_word()?);
        Ok(rustix::fs::renameat(from, name, &self.dir, target)?)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is tried again by the next `begin`.
        if removal::empty(self.dir.as_fd(), REMOVED_WITHIN).is_ok() {
            let _ = rustix::fs::unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR);
        }
    }
}

pub(crate) fn is_staging_name(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

fn remove_stale(root: BorrowedFd<'_>) {
    let Ok(listed) = beneath::names(root, usize::MAX) else {
        return;
    };
    let stale = listed
        .names
        .iter()
        .filter(|name| is_staging_name(name.as_encoded_bytes()) && is_old(root, name));
    for name in stale {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(dir) = rustix::fs::openat(root, name, flags, Mode::empty()) else {
            continue;
        };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
            && removal::empty(dir.as_fd(), LEFTOVER_WITHIN).is_ok()
        {
            let _ = rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR);
        }
    }
}

fn is_old(root: BorrowedFd<'_>, name: &OsString) -> bool {
    let Ok(stat) = beneath::stat_entry(root, Path::new(name)) else {
        return false;
    };
    let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else {
        return false;
    };
    let changed = Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
    now.saturating_sub(changed) > STALE_AFTER
}

/// Sixteen hexadecimal digits that nobody can guess.
pub(crate) fn random_word() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}
