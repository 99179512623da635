//! Opening what is a file or a directory, and nothing that only looks like one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::words::ToolFailure;

/// Never waits for a partner, and never makes a terminal ours.
pub(super) const CALMLY: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

pub(super) enum Opened {
    File(File, Stat),
    Directory(OwnedFd),
}

/// Opens a path as its caller named it: symlinks are followed, everything but files and directories is
/// left alone. Pipes and devices are not even opened.
pub(super) fn open(path: &str, missing: &str) -> Result<Opened, ToolFailure> {
    let failed = |errno: Errno| ToolFailure::of(path, missing)(errno.into());
    let looked = rustix::fs::stat(path).map_err(failed)?;
    if !is_file(&looked) && !is_directory(&looked) {
        return Err(ToolFailure::not_a_file(path));
    }
    let fd = rustix::fs::open(path, CALMLY, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&fd).map_err(failed)?;
    if is_kernels(&fd).map_err(failed)? {
        return Err(ToolFailure::not_a_file(path));
    }
    if is_directory(&stat) {
        Ok(Opened::Directory(fd))
    } else if is_file(&stat) {
        Ok(Opened::File(File::from(fd), stat))
    } else {
        Err(ToolFailure::not_a_file(path))
    }
}

pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

pub(super) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Whether this is on a file system that the kernel makes up: such files have no end, or wait, or speak
/// of whoever reads them.
pub(super) fn is_kernels(fd: impl AsFd) -> rustix::io::Result<bool> {
    const PROC: i64 = 0x9fa0;
    const SYSFS: i64 = 0x6265_6572;
    const CGROUP: i64 = 0x0027_e0eb;
    const CGROUP2: i64 = 0x6367_7270;
    const DEBUGFS: i64 = 0x6462_6720;
    const TRACEFS: i64 = 0x7472_6163;
    const SECURITYFS: i64 = 0x7363_6673;
    let system = match rustix::fs::fstatfs(fd) {
        Ok(system) => system,
        // gVisor's made-up file systems do not say what they are; its others do.
        Err(Errno::NOSYS) => return Ok(true),
        Err(error) => return Err(error),
    };
    #[allow(
        clippy::unnecessary_cast,
        reason = "the field's width varies by machine"
    )]
    let kind = system.f_type as i64;
    Ok([PROC, SYSFS, CGROUP, CGROUP2, DEBUGFS, TRACEFS, SECURITYFS].contains(&kind))
}

/// As much as there is, up to the length of `buffer`.
pub(super) fn fill(file: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match file.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(n) => at += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}
