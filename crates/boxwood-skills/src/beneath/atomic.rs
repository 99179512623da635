//! Replaces files atomically.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, Stat};

use crate::beneath;
use crate::beneath::staging::random_suffix;

pub(crate) const PREFIX: &str = ".boxwood-write-";

/// Writes a temporary file, flushes it and renames it over the target. Keeps the owner and the executable bit of an
/// existing file.
pub(crate) fn write(dir: BorrowedFd<'_>, name: &Path, content: &[u8]) -> io::Result<()> {
    let old = match beneath::stat_entry(dir, name) {
        Ok(stat) if beneath::is_regular(&stat) => Some(stat),
        Ok(_) => None,
        Err(error) if beneath::is_missing(&error) => None,
        Err(error) => return Err(error),
    };
    let temporary = format!("{PREFIX}{}", random_suffix()?);
    let temporary = Path::new(&temporary);
    let result = fill(dir, temporary, content, old.as_ref())
        .and_then(|()| Ok(rustix::fs::renameat(dir, temporary, dir, name)?));
    if result.is_err() {
        let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
        return result;
    }
    // Flush the directory too. Otherwise a power failure can undo the rename.
    Ok(rustix::fs::fsync(dir)?)
}

fn fill(dir: BorrowedFd<'_>, name: &Path, content: &[u8], old: Option<&Stat>) -> io::Result<()> {
    let mut file = beneath::create_file(dir, name)?;
    file.write_all(content)?;
    let executable = old.is_some_and(beneath::is_executable);
    if let Some(old) = old {
        let stat = rustix::fs::fstat(&file)?;
        if (stat.st_uid, stat.st_gid) != (old.st_uid, old.st_gid) {
            let uid = rustix::fs::Uid::from_raw(old.st_uid);
            let gid = rustix::fs::Gid::from_raw(old.st_gid);
            // Only root can change the owner. For other users the file belongs to the daemon.
            let _ = rustix::fs::fchown(file.as_fd(), Some(uid), Some(gid));
        }
    }
    set_mode(file.as_fd(), executable)?;
    Ok(rustix::fs::fsync(&file)?)
}

/// Sets one of the two modes that files of a package have.
pub(crate) fn set_mode(file: BorrowedFd<'_>, executable: bool) -> io::Result<()> {
    let mode = if executable { 0o755 } else { 0o644 };
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}

/// Creates a directory. An existing one is not an error.
pub(crate) fn make_dir(at: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
