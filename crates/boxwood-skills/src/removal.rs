//! Removing a tree that somebody may be writing into.
//!
//! Subdirectories are moved up into the directory that is being emptied instead of being entered
//! recursively: a tree a hundred thousand levels deep costs one open directory and no stack, and
//! no step ever goes through a link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath;
use crate::staging::random_word;

const PASSES_WITHOUT_PROGRESS: usize = 16;
const BATCH: usize = 4096;

/// Removes everything in a directory, which is ours alone. What is in it may still be mounted in a
/// box: somebody there who keeps adding files must not keep us here for ever.
pub(crate) fn empty(top: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    let mut idle = 0;
    let mut last_error = None;
    loop {
        if Instant::now() > until {
            return Err(Errno::TIMEDOUT.into());
        }
        let listed = beneath::names(top, BATCH)?;
        if listed.names.is_empty() {
            return Ok(());
        }
        let mut progress = false;
        for name in &listed.names {
            match remove_one(top, Path::new(name), until) {
                Ok(moved) => progress |= moved,
                Err(error) => last_error = Some(error),
            }
        }
        idle = if progress { 0 } else { idle + 1 };
        if idle >= PASSES_WITHOUT_PROGRESS {
            return Err(last_error.unwrap_or_else(|| Errno::NOTEMPTY.into()));
        }
    }
}

/// Whether anything became less.
fn remove_one(top: BorrowedFd<'_>, name: &Path, until: Instant) -> io::Result<bool> {
    match rustix::fs::unlinkat(top, name, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let dir = open_for_removal(top, name)?;
    let mut progress = false;
    loop {
        let listed = beneath::names(dir.as_fd(), BATCH)?;
        if listed.names.is_empty() {
            break;
        }
        for child in &listed.names {
            match rustix::fs::unlinkat(&dir, child, AtFlags::empty()) {
                Ok(()) => {}
                Err(Errno::ISDIR | Errno::PERM) => {
                    move_up(dir.as_fd(), Path::new(child), top)?;
                }
                Err(error) => return Err(error.into()),
            }
            progress = true;
        }
        if listed.complete || Instant::now() > until {
            break;
        }
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        // Refilled while we worked: the next pass sees it.
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(progress),
        Err(error) => Err(error.into()),
    }
}

fn move_up(from: BorrowedFd<'_>, name: &Path, top: BorrowedFd<'_>) -> io::Result<()> {
    let target = format!("up-{}", random_word()?);
    match rustix::fs::renameat(from, name, top, &target) {
        Ok(()) => Ok(()),
        // Moving a directory rewrites its `..`, which needs the right to write into it.
        Err(Errno::ACCESS) => {
            drop(open_for_removal(from, name)?);
            Ok(rustix::fs::renameat(from, name, top, &target)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory and makes sure that we may change it.
fn open_for_removal(at: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let ours = Mode::from_raw_mode(0o700);
    let dir = match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::ACCESS) => {
            // Without the right to read, a handle on the place still lets its owner change it.
            let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let place = rustix::fs::openat(at, name, place, Mode::empty())?;
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place));
            rustix::fs::chmod(link, ours)?;
            rustix::fs::openat(at, name, flags, Mode::empty())?
        }
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&dir)?;
    if stat.st_mode & 0o700 != 0o700 {
        // Not ours to change: the unlink that follows will say so.
        let _ = rustix::fs::fchmod(&dir, ours);
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever holds a directory of the tree can add to it as fast as we remove.
    #[test]
    fn patience_ends() {
        let top = tempfile::tempdir().expect("temporary directory");
        for number in 0..3 {
            std::fs::create_dir_all(top.path().join(format!("a/{number}/b"))).expect("directory");
        }
        let dir = beneath::open_top(top.path()).expect("opened");
        let error = empty(dir.as_fd(), Duration::ZERO).expect_err("emptied in no time");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(top.path().join("a").exists());
        empty(dir.as_fd(), Duration::from_mins(1)).expect("emptied");
        assert_eq!(std::fs::read_dir(top.path()).expect("listed").count(), 0);
    }
}
