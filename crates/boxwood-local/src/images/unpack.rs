//! Unpacks an archive into a directory.
//!
//! Every path is opened with `openat2` and `RESOLVE_BENEATH`, without following symlinks. Owners are kept
//! if this process is root. Devices and pipes are skipped; setuid and setgid bits and extended attributes
//! are dropped.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, UNIX_EPOCH};

use boxwood_backend::ImageError;
use flate2::read::MultiGzDecoder;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::entry_path::EntryPath;
use super::tar_fault::{bad, bad_entry, reading, writing};
use super::tar_stream::{Entry, Kind, TarStream};

const GIB: u64 = 1 << 30;

/// Far above any real root file system, far below the size of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Total size of the unpacked files.
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 20 * GIB,
            entries: 2_000_000,
        }
    }
}

/// The highest id of a box.
const LAST_ID: u64 = 65_535;

/// Owner of the unpacked files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owners {
    /// As in the archive; a box maps them to its own ids.
    Kept,
    /// The user of this process.
    Own,
}

impl Owners {
    pub(super) fn of_this_process() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Kept
        } else {
            Self::Own
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

/// Unpacks a plain or gzip-compressed archive into an empty directory.
pub(super) fn unpack(
    mut archive: impl Read,
    root: BorrowedFd<'_>,
    owners: Owners,
    limits: &Limits,
) -> Result<Sizes, ImageError> {
    let mut head = Vec::new();
    let read = archive.by_ref().take(6).read_to_end(&mut head);
    read.map_err(|error| reading(&error))?;
    let archive = head.as_slice().chain(archive);
    match *head.as_slice() {
        [0x1f, 0x8b, ..] => entries(MultiGzDecoder::new(archive), root, owners, limits),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err(compressed("zstd", "zstd -dc")),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Err(compressed("xz", "xz -dc")),
        [b'B', b'Z', b'h', ..] => Err(compressed("bzip2", "bzip2 -dc")),
        [] => Err(bad("it is empty")),
        _ => entries(archive, root, owners, limits),
    }
}

fn compressed(with: &str, undo: &str) -> ImageError {
    bad(format!(
        "it is compressed with {with}; use `{undo} FILE | boxwood image import - NAME`"
    ))
}

fn entries(
    input: impl Read,
    root: BorrowedFd<'_>,
    owners: Owners,
    limits: &Limits,
) -> Result<Sizes, ImageError> {
    let mut stream = TarStream::new(input);
    let mut writer = Writer {
        root,
        owners,
        last_parent: None,
        buffer: vec![0; 128 * 1024],
    };
    let mut bytes = 0_u64;
    while let Some(entry) = stream.next()? {
        bytes = bytes.saturating_add(entry.size);
        if bytes > limits.bytes {
            let why = format!("it has more than {} bytes", limits.bytes);
            return Err(ImageError::TooLarge { why });
        }
        if stream.headers() > limits.entries {
            let why = format!("it has more than {} entries", limits.entries);
            return Err(ImageError::TooLarge { why });
        }
        writer.write(&entry, &mut stream)?;
    }
    let entries = stream.headers();
    if entries == 0 {
        return Err(bad("it is empty"));
    }
    reject_layer_archive(root)?;
    Ok(Sizes { bytes, entries })
}

/// Rejects an archive of image layers, which would unpack without error but contains no root file system.
fn reject_layer_archive(root: BorrowedFd<'_>) -> Result<(), ImageError> {
    let exists = |name: &str| rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let has_layers = ["manifest.json", "oci-layout"].into_iter().any(exists);
    let has_system = ["bin", "usr", "etc", "lib", "nix"].into_iter().any(exists);
    if has_layers && !has_system {
        return Err(bad(
            "it contains image layers (`docker save`), not a root file system (`docker export`)",
        ));
    }
    Ok(())
}

struct Writer<'a> {
    root: BorrowedFd<'a>,
    owners: Owners,
    /// The parent directory of the previous entry: most entries are siblings.
    last_parent: Option<(Vec<u8>, OwnedFd)>,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    fn write<R: Read>(
        &mut self,
        entry: &Entry,
        content: &mut TarStream<R>,
    ) -> Result<(), ImageError> {
        let owner = self.owner(entry)?;
        let (parent, name) = match EntryPath::new(&entry.path)? {
            EntryPath::Below { parent, name } => (parent, name),
            EntryPath::Root if entry.kind == Kind::Directory => {
                // An archive of a temporary directory often has mode 0700 here.
                return set_metadata(self.root, entry, entry.mode | 0o755, owner);
            }
            EntryPath::Root => return Err(bad_entry(&entry.path, "replaces the root directory")),
        };
        if entry.kind == Kind::Special {
            return Ok(());
        }
        let parent_dir = self.open_parent(&entry.path, &parent)?;
        let parent_dir = parent_dir.as_fd();
        match entry.kind {
            Kind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let make =
                    || rustix::fs::openat(parent_dir, &*name, flags, Mode::from_raw_mode(0o600));
                let mut file = File::from(self.replacing(entry, parent_dir, &name, make)?);
                self.copy(entry, content, &mut file)?;
                set_metadata(file.as_fd(), entry, entry.mode & 0o777, owner)?;
                let modified = UNIX_EPOCH.checked_add(Duration::from_secs(entry.modified));
                file.set_modified(modified.unwrap_or(UNIX_EPOCH))
                    .map_err(|error| writing(&entry.path, error))
            }
            Kind::Directory => {
                let directory = self.directory(entry, parent_dir, &name)?;
                let mode = match self.owners {
                    Owners::Kept => entry.mode & 0o1777,
                    // Otherwise this user could neither write into it nor remove it.
                    Owners::Own => (entry.mode & 0o1777) | 0o700,
                };
                set_metadata(directory.as_fd(), entry, mode, owner)
            }
            Kind::Symlink => {
                if entry.link.is_empty() || entry.link.contains(&0) {
                    return Err(bad_entry(&entry.path, "is a symlink without a target"));
                }
                let make = || rustix::fs::symlinkat(&*entry.link, parent_dir, &*name);
                self.replacing(entry, parent_dir, &name, make)?;
                match owner {
                    Some((uid, gid)) => {
                        let flags = AtFlags::SYMLINK_NOFOLLOW;
                        rustix::fs::chownat(parent_dir, &*name, Some(uid), Some(gid), flags)
                            .map_err(|errno| writing(&entry.path, errno))
                    }
                    None => Ok(()),
                }
            }
            Kind::HardLink => self.hard_link(entry, parent_dir, &name),
            Kind::Special => Ok(()),
        }
    }

    fn owner(&self, entry: &Entry) -> Result<Option<(Uid, Gid)>, ImageError> {
        if self.owners == Owners::Own {
            return Ok(None);
        }
        let id = |id: u64| match u32::try_from(id) {
            Ok(small) if id <= LAST_ID => Ok(small),
            _ => Err(bad_entry(
                &entry.path,
                &format!("has owner id {id}, but boxes have ids up to {LAST_ID}"),
            )),
        };
        let (uid, gid) = (id(entry.uid)?, id(entry.gid)?);
        Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid))))
    }

    fn copy(
        &mut self,
        entry: &Entry,
        content: &mut impl Read,
        file: &mut File,
    ) -> Result<(), ImageError> {
        loop {
            let read = match content.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(reading(&error)),
            };
            io::Write::write_all(file, &self.buffer[..read])
                .map_err(|error| writing(&entry.path, error))?;
        }
    }

    /// Opens the directory at a checked path and creates missing parents.
    fn open_parent(&mut self, entry: &[u8], path: &[u8]) -> Result<OwnedFd, ImageError> {
        if let Some((last_parent, directory)) = &self.last_parent
            && last_parent == path
        {
            return directory.try_clone().map_err(|error| writing(entry, error));
        }
        let directory = match open_beneath(self.root, path) {
            Err(Errno::NOENT) => self.make_parents(entry, path)?,
            opened => opened.map_err(|errno| path_error(entry, errno))?,
        };
        let copy = directory
            .try_clone()
            .map_err(|error| writing(entry, error))?;
        self.last_parent = Some((path.to_owned(), copy));
        Ok(directory)
    }

    fn make_parents(&self, entry: &[u8], path: &[u8]) -> Result<OwnedFd, ImageError> {
        let mut directory =
            open_beneath(self.root, b"").map_err(|errno| path_error(entry, errno))?;
        for part in path.split(|byte| *byte == b'/') {
            match rustix::fs::mkdirat(&directory, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(writing(entry, errno)),
            }
            directory =
                open_beneath(directory.as_fd(), part).map_err(|errno| path_error(entry, errno))?;
        }
        Ok(directory)
    }

    fn directory(
        &mut self,
        entry: &Entry,
        parent_dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<OwnedFd, ImageError> {
        let created = rustix::fs::mkdirat(parent_dir, name, Mode::from_raw_mode(0o700));
        match created {
            Ok(()) => {}
            Err(Errno::EXIST) if kind_at(parent_dir, name) == Some(FileType::Directory) => {}
            Err(Errno::EXIST) => {
                let make = || rustix::fs::mkdirat(parent_dir, name, Mode::from_raw_mode(0o700));
                self.replacing(entry, parent_dir, name, make)?;
            }
            Err(errno) => return Err(writing(&entry.path, errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent_dir, name, flags, Mode::empty())
            .map_err(|errno| writing(&entry.path, errno))
    }

    fn hard_link(
        &mut self,
        entry: &Entry,
        parent_dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), ImageError> {
        let target = EntryPath::new(&entry.link)?;
        if target == EntryPath::new(&entry.path)? {
            return Err(bad_entry(&entry.path, "is a hard link to itself"));
        }
        let EntryPath::Below { parent, name: old } = target else {
            return Err(bad_entry(&entry.path, "is a hard link to a directory"));
        };
        let from = open_beneath(self.root, &parent).map_err(|errno| match errno {
            Errno::NOENT => bad_entry(
                &entry.path,
                "is a hard link to a file that is not in the archive",
            ),
            errno => path_error(&entry.link, errno),
        })?;
        match kind_at(from.as_fd(), &old) {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            Some(_) => {
                return Err(bad_entry(
                    &entry.path,
                    "is a hard link to something that is not a file",
                ));
            }
            None => {
                return Err(bad_entry(
                    &entry.path,
                    "is a hard link to a file that is not in the archive before it",
                ));
            }
        }
        // Without `AT_SYMLINK_FOLLOW` the last symlink is not followed.
        let make = || rustix::fs::linkat(&from, &*old, parent_dir, name, AtFlags::empty());
        self.replacing(entry, parent_dir, name, make)
    }

    /// Creates an entry; a later entry replaces an earlier one of the same name.
    fn replacing<T>(
        &mut self,
        entry: &Entry,
        parent_dir: BorrowedFd<'_>,
        name: &[u8],
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> Result<T, ImageError> {
        match make() {
            Err(Errno::EXIST) => {}
            done => return done.map_err(|errno| writing(&entry.path, errno)),
        }
        self.last_parent = None;
        let flags = match kind_at(parent_dir, name) {
            Some(FileType::Directory) => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        match rustix::fs::unlinkat(parent_dir, name, flags) {
            Ok(()) => make().map_err(|errno| writing(&entry.path, errno)),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(bad_entry(
                &entry.path,
                "replaces a directory that is not empty",
            )),
            Err(errno) => Err(writing(&entry.path, errno)),
        }
    }
}

fn set_metadata(
    file: BorrowedFd<'_>,
    entry: &Entry,
    mode: u32,
    owner: Option<(Uid, Gid)>,
) -> Result<(), ImageError> {
    // The owner first: changing it clears mode bits.
    if let Some((uid, gid)) = owner {
        rustix::fs::fchown(file, Some(uid), Some(gid))
            .map_err(|errno| writing(&entry.path, errno))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o1777))
        .map_err(|errno| writing(&entry.path, errno))
}

fn kind_at(directory: BorrowedFd<'_>, name: &[u8]) -> Option<FileType> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Opens a directory below another one, without crossing symlinks or mounts.
fn open_beneath(directory: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    const ATTEMPTS: usize = 64;
    let path = if path.is_empty() {
        b".".as_slice()
    } else {
        path
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

fn path_error(entry: &[u8], errno: Errno) -> ImageError {
    match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => {
            bad_entry(entry, "has a parent that is not a directory")
        }
        errno => writing(entry, errno),
    }
}
