//! A private directory of the store in which packages are built before they are renamed into place, and into which
//! they are moved to be removed.
//!
//! It is in the store's root, so that a rename stays on one file system. Listings skip its name. A staging directory
//! in use is locked; leftovers of a crash are not locked, and the next [`Staging::begin`] removes them.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use boxwood_sys::tree;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::beneath::{self, Links, atomic};

pub(crate) const PREFIX: &str = ".boxwood-staging-";

/// A younger directory may have been created by a process that has not locked it yet.
const STALE_AFTER: Duration = Duration::from_mins(1);

/// Time limit for removing the contents: the store is locked meanwhile.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for each leftover, whose removal is not urgent.
const REMOVE_LEFTOVER_TIMEOUT: Duration = Duration::from_secs(1);

/// Removed with its contents when dropped.
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
        let name = format!("{PREFIX}{}", random_suffix()?);
        rustix::fs::mkdirat(&root, &name, Mode::from_raw_mode(0o700))?;
        let dir = beneath::open_dir(root.as_fd(), Path::new(&name), Links::Never)?;
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { root, dir, name })
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Creates a directory to fill.
    pub(crate) fn make(&self, name: &Path) -> io::Result<OwnedFd> {
        atomic::make_dir(self.dir(), name)?;
        beneath::open_dir(self.dir(), name, Links::Never)
    }

    /// Moves a complete directory into the store. Returns false if the store has an entry with this name.
    pub(crate) fn publish(&self, name: &Path) -> io::Result<bool> {
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.dir, name, &self.root, name, flags) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Ok(false),
            done => done?,
        }
        rustix::fs::fsync(&self.root)?;
        Ok(true)
    }

    /// Moves an entry of another directory here, to be removed with the staging directory.
    pub(crate) fn discard(&self, from: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
        let target = format!("gone-{}", random_suffix()?);
        Ok(rustix::fs::renameat(from, name, &self.dir, target)?)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The next `begin` tries again to remove what remains.
        if remove_contents(&self.dir, REMOVE_TIMEOUT).is_ok() {
            let _ = rustix::fs::unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR);
        }
    }
}

pub(crate) fn is_staging_name(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

fn remove_stale(root: BorrowedFd<'_>) {
    let Ok(Some(names)) = beneath::names(root, usize::MAX) else {
        return;
    };
    let stale = names
        .iter()
        .filter(|name| is_staging_name(name.as_encoded_bytes()) && is_old(root, name));
    for name in stale {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(dir) = rustix::fs::openat(root, name, flags, Mode::empty()) else {
            continue;
        };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
            && remove_contents(&dir, REMOVE_LEFTOVER_TIMEOUT).is_ok()
        {
            let _ = rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR);
        }
    }
}

fn remove_contents(directory: &OwnedFd, timeout: Duration) -> io::Result<()> {
    tree::remove_contents(directory.try_clone()?, Some(Instant::now() + timeout))
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

/// Sixteen unpredictable hexadecimal digits.
pub(crate) fn random_suffix() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}
