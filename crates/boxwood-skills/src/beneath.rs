//! Going down from an open directory, and never out of it.
//!
//! A box may have a package mounted for writing while the daemon works in it, so a path that was
//! looked at is worth nothing a moment later. Here every step is one `openat2` call on a
//! directory that is already open: the kernel itself refuses to leave it.
//!
//! Comes in: an open directory and a relative path. Goes out: open files and directories. Never
//! here: paths that are looked up from the top, links that lead out, opens that can block.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// What to do about symbolic links on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Refuse them all.
    Never,
    /// Follow those that stay inside.
    Inside,
}

/// A rename elsewhere on the machine makes `openat2` give up with `EAGAIN` when it meets `..`.
const ATTEMPTS: usize = 64;

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Opens the directory everything else goes down from. Links in the operator's own path are
/// the operator's business, and were resolved when the path was named; one that stands in it now
/// was put there since, perhaps by a box that has a directory above the store.
pub(crate) fn open_top(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(
        CWD,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

pub(crate) fn open_dir(at: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<OwnedFd> {
    open(at, path, READ | OFlags::DIRECTORY, Mode::empty(), links)
}

/// Opens for reading whatever is there. A FIFO opens without waiting for a writer; the caller
/// looks at the kind before it reads.
pub(crate) fn open_file(at: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<OwnedFd> {
    open(at, path, READ, Mode::empty(), links)
}

/// A handle that names a place without opening what is there.
pub(crate) fn open_place(at: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<OwnedFd> {
    open(
        at,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        links,
    )
}

/// Creates a file that must not exist yet.
pub(crate) fn create_file(at: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(at, path, flags, Mode::from_raw_mode(0o600), Links::Never)?;
    Ok(File::from(file))
}

fn open(
    at: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    links: Links,
) -> io::Result<OwnedFd> {
    let resolve = match links {
        Links::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Links::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    };
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(at, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// The entry itself, link or not. `name` is a single component.
pub(crate) fn stat_entry(at: BorrowedFd<'_>, name: &Path) -> io::Result<Stat> {
    Ok(rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

pub(crate) fn is_regular(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file()
}

pub(crate) fn is_directory(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()
}

pub(crate) fn is_link(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink()
}

pub(crate) fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o111 != 0
}

pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Reads an open file up to a limit; `None` when there is more.
pub(crate) fn read_bounded(file: impl AsFd, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = File::from(file.as_fd().try_clone_to_owned()?);
    let mut content = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    Ok((content.len() as u64 <= limit).then_some(content))
}

/// The names in a directory, except `.` and `..`, in no order; at most `limit` of them.
pub(crate) fn names(dir: BorrowedFd<'_>, limit: usize) -> io::Result<Names> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        if names.len() == limit {
            return Ok(Names {
                names,
                complete: false,
            });
        }
        names.push(std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec()));
    }
    Ok(Names {
        names,
        complete: true,
    })
}

pub(crate) struct Names {
    pub(crate) names: Vec<std::ffi::OsString>,
    pub(crate) complete: bool,
}

/// `EXDEV` is the kernel's word for "that leads out", `ELOOP` for a link where none may be.
pub(crate) fn leads_out(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::XDEV | Errno::LOOP))
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR)
    )
}
