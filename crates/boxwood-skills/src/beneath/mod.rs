//! Opens files below an open directory without ever leaving it.
//!
//! A box may have a package mounted for writing while the daemon uses it, so a checked path can change at any time.
//! Every access is one `openat2` call relative to an open directory, and the kernel enforces that it stays below.
//! Opening never blocks.

pub(crate) mod atomic;
pub(crate) mod staging;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::{Limits, Oversize, SkillError};

/// How to treat symbolic links in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Refuse all links.
    Never,
    /// Follow links that stay below the directory.
    Inside,
}

/// `openat2` returns `EAGAIN` for paths with `..` when a rename happens anywhere on the system.
const ATTEMPTS: usize = 64;

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Opens the directory that all other paths are relative to. Links in the configured path were resolved when it was
/// configured. A link found in it now was created later, possibly by a box with a mounted parent directory, and
/// is refused.
pub(crate) fn open_top(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS;
    let dir = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve);
    Ok(dir?)
}

pub(crate) fn open_dir(at: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<OwnedFd> {
    open(at, path, READ | OFlags::DIRECTORY, Mode::empty(), links)
}

/// Opens any kind of file for reading. A FIFO opens without waiting for a writer; the caller checks the kind before
/// it reads.
pub(crate) fn open_file(at: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<OwnedFd> {
    open(at, path, READ, Mode::empty(), links)
}

/// Opens a path with `O_PATH`.
pub(crate) fn open_path(at: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    open(at, path, flags, Mode::empty(), links)
}

/// Opens an existing file for writing, also behind links that stay below the directory. Does not truncate it: the
/// caller checks the kind before it writes.
pub(crate) fn open_for_writing(at: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(open(at, path, flags, Mode::empty(), Links::Inside)?.into())
}

/// Creates a file. Fails if it exists.
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

/// Metadata of the entry itself; links are not followed. `name` is a single component.
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

/// Reads an open file. Returns `None` if it is longer than `limit`.
pub(crate) fn read_bounded(file: impl AsFd, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = File::from(file.as_fd().try_clone_to_owned()?);
    let mut content = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    Ok((content.len() as u64 <= limit).then_some(content))
}

/// The names of a directory without `.` and `..`, unsorted. `None` if there are more than `limit`.
pub(crate) fn names(dir: BorrowedFd<'_>, limit: usize) -> io::Result<Option<Vec<OsString>>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if matches!(bytes, b"." | b"..") {
            continue;
        }
        if names.len() == limit {
            return Ok(None);
        }
        names.push(OsString::from_vec(bytes.to_vec()));
    }
    Ok(Some(names))
}

/// An entry found by [`walk`].
pub(crate) struct Found<'a> {
    /// The directory that contains it.
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a Path,
    /// Relative to the top of the walk.
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
}

/// Visits all entries below a directory, each directory before its contents and sorted by name. `visit` returns false
/// to skip the contents of a directory. Entries that disappear meanwhile are skipped.
pub(crate) fn walk(
    top: BorrowedFd<'_>,
    operation: &'static str,
    limits: &Limits,
    mut visit: impl FnMut(&Found<'_>) -> Result<bool, SkillError>,
) -> Result<(), SkillError> {
    let mut queue = vec![PathBuf::new()];
    let mut left = limits.max_entries;
    while let Some(path) = queue.pop() {
        let failed = |error| SkillError::io(operation, &path, error);
        let dir = match open_dir(top, &path, Links::Never) {
            Err(error) if is_missing(&error) || leads_out(&error) => continue,
            dir => dir.map_err(failed)?,
        };
        let Some(mut names) = names(dir.as_fd(), left).map_err(failed)? else {
            return Err(SkillError::too_large(Oversize::Entries, limits.max_entries));
        };
        left -= names.len();
        names.sort();
        for name in &names {
            let name = Path::new(name);
            let Ok(stat) = stat_entry(dir.as_fd(), name) else {
                continue;
            };
            let found = Found {
                dir: dir.as_fd(),
                name,
                path: path.join(name),
                stat,
            };
            if visit(&found)? && is_directory(&stat) {
                queue.push(found.path);
            }
        }
    }
    Ok(())
}

/// `openat2` returns `EXDEV` for a path that leaves the directory and `ELOOP` for a refused link.
pub(crate) fn leads_out(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::XDEV | Errno::LOOP))
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR)
    )
}
