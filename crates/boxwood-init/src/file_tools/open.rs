//! Opens regular files and directories, and rejects everything else.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use boxwood_sys::mount::PROC;

use super::types::FileToolError;

/// Never blocks on a FIFO and never acquires a controlling terminal.
pub(super) const OPEN_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

pub(super) enum Opened {
    File(File, Stat),
    Directory(OwnedFd),
}

/// Follows symlinks. FIFOs and devices are rejected without being opened.
pub(super) fn open(path: &str, missing: &str) -> Result<Opened, FileToolError> {
    let failed = |errno: Errno| FileToolError::of(path, missing)(errno.into());
    let stat = rustix::fs::stat(path).map_err(failed)?;
    if !is_file(&stat) && !is_directory(&stat) {
        return Err(FileToolError::not_a_file(path));
    }
    let fd = rustix::fs::open(path, OPEN_FLAGS, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&fd).map_err(failed)?;
    if is_on_pseudo_filesystem(&fd).map_err(failed)? {
        return Err(FileToolError::not_a_file(path));
    }
    if is_directory(&stat) {
        Ok(Opened::Directory(fd))
    } else if is_file(&stat) {
        Ok(Opened::File(File::from(fd), stat))
    } else {
        Err(FileToolError::not_a_file(path))
    }
}

pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

pub(super) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Files of procfs, sysfs and the like can be endless, can block, or describe the process that reads them.
pub(super) fn is_on_pseudo_filesystem(fd: impl AsFd) -> rustix::io::Result<bool> {
    const SYSFS: i64 = 0x6265_6572;
    const CGROUP: i64 = 0x0027_e0eb;
    const CGROUP2: i64 = 0x6367_7270;
    const DEBUGFS: i64 = 0x6462_6720;
    const TRACEFS: i64 = 0x7472_6163;
    const SECURITYFS: i64 = 0x7363_6673;
    match boxwood_sys::mount::file_system(fd) {
        Ok(kind) => {
            Ok([PROC, SYSFS, CGROUP, CGROUP2, DEBUGFS, TRACEFS, SECURITYFS].contains(&kind))
        }
        // In gVisor only pseudo file systems do not support `fstatfs`.
        Err(Errno::NOSYS) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Reads until `buffer` is full or the file ends.
pub(super) fn fill(file: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
