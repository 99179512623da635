//! The directories of the image store and their locks.
//!
//! Locks are `flock` on the directories themselves: they work between processes and end with the process
//! that holds them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use boxwood_api::ImageName;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::record::Record;

const ROOTFS: &str = "rootfs";
const RECORD: &str = "image.json";
const NEW: &str = ".new-";
const GONE: &str = ".gone-";
/// How often a directory may be replaced between being opened and being locked.
const ATTEMPTS: usize = 16;

pub(super) struct StoreDir {
    dir: PathBuf,
}

/// Keeps an image while it exists.
#[derive(Debug)]
pub struct ImageLease {
    rootfs: PathBuf,
    handle: OwnedFd,
    /// Shared lock; removing the image needs an exclusive one.
    lock: File,
}

impl ImageLease {
    pub fn rootfs(&self) -> &Path {
        &self.rootfs
    }

    /// The same directory as an `O_PATH` descriptor.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.handle.try_clone()
    }

    /// The locked descriptor. The lock belongs to the open file description, so a copy in any process
    /// keeps the image.
    pub(crate) fn into_lock(self) -> OwnedFd {
        self.lock.into()
    }
}

/// Result of removing an image.
pub(super) enum Removal {
    Removed,
    InUse,
    NotFound,
}

impl StoreDir {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// A readable, bounded and unique directory name.
    fn of(&self, name: &ImageName) -> PathBuf {
        const MAX_READABLE_CHARS: usize = 60;
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let readable: String = name
            .as_str()
            .chars()
            .take(MAX_READABLE_CHARS)
            .map(plain)
            .collect();
        let digest = Sha256::digest(name.as_str().as_bytes());
        let hex = data_encoding::HEXLOWER.encode(&digest[..16]);
        self.dir.join(format!("{readable}-{hex}"))
    }

    pub(super) fn find(&self, name: &ImageName) -> io::Result<Option<ImageLease>> {
        let path = self.of(name);
        for _ in 0..ATTEMPTS {
            let Some(lock) = if_exists(File::open(&path))? else {
                return Ok(None);
            };
            if !try_lock(&lock, FlockOperation::NonBlockingLockShared)? {
                // It is being removed.
                return Ok(None);
            }
            if is_same_directory(&path, &lock)? {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let handle = rustix::fs::openat(&lock, ROOTFS, flags, Mode::empty())?;
                return Ok(Some(ImageLease {
                    // A rootless box opens it again and follows no symlinks.
                    rootfs: fs::canonicalize(path.join(ROOTFS))?,
                    handle,
                    lock,
                }));
            }
        }
        Err(io::Error::other(
            "the image is replaced repeatedly; try again",
        ))
    }

    pub(super) fn records(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in self.entries()? {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // It is being removed, or it is a directory of something else.
            let Ok(text) = fs::read(entry.path().join(RECORD)) else {
                continue;
            };
            if let Ok(record) = serde_json::from_slice::<Record>(&text)
                && self.of(&record.name) == entry.path()
            {
                records.push(record);
            }
        }
        records.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(records)
    }

    /// Creates the directory of an import.
    pub(super) fn begin(&self) -> io::Result<PendingImage<'_>> {
        let mut private = DirBuilder::new();
        private.mode(0o700).recursive(true).create(&self.dir)?;
        // While this lock is held no cleanup runs, so the new directory is locked before it is seen.
        let _guard = self.guard(FlockOperation::LockShared)?;
        let path = self.unused_path(NEW)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::open(&path)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let root = path.join(ROOTFS);
        DirBuilder::new().mode(0o755).create(&root)?;
        let rootfs = File::open(&root)?;
        // Regardless of the umask: commands of a box have another uid.
        rustix::fs::fchmod(&rootfs, Mode::from_raw_mode(0o755))?;
        Ok(PendingImage {
            store_dir: self,
            path,
            lock,
            rootfs,
            done: false,
        })
    }

    pub(super) fn remove(&self, name: &ImageName) -> io::Result<Removal> {
        let path = self.of(name);
        let Some(_guard) = if_exists(self.guard(FlockOperation::LockExclusive))? else {
            return Ok(Removal::NotFound);
        };
        let Some(lock) = if_exists(File::open(&path))? else {
            return Ok(Removal::NotFound);
        };
        if !try_lock(&lock, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(Removal::InUse);
        }
        fs::rename(&path, self.unused_path(GONE)?)?;
        Ok(Removal::Removed)
    }

    pub(super) fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        let is_leftover = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            [NEW, GONE]
                .iter()
                .any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
        };
        let found = self.entries()?.into_iter().filter(is_leftover);
        Ok(found.map(|entry| entry.path()).collect())
    }

    fn entries(&self) -> io::Result<Vec<fs::DirEntry>> {
        let entries = if_exists(fs::read_dir(&self.dir))?;
        entries.into_iter().flatten().collect()
    }

    /// Held while a directory gets another name or is claimed for removal.
    pub(super) fn guard(&self, operation: FlockOperation) -> io::Result<File> {
        let guard = File::open(&self.dir)?;
        rustix::fs::flock(&guard, operation)?;
        Ok(guard)
    }

    /// An unused path: the pid distinguishes processes, the counter operations of one process.
    fn unused_path(&self, prefix: &str) -> io::Result<PathBuf> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{prefix}{}-{number}", std::process::id());
            let path = self.dir.join(name);
            if !path.try_exists()? {
                return Ok(path);
            }
        }
    }
}

/// `None` if the file or directory does not exist.
pub(super) fn if_exists<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Returns false if another holder has a lock that excludes this one.
pub(super) fn try_lock(directory: &File, operation: FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(directory, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns true if the path still leads to the opened directory, which may have been moved before it was locked.
fn is_same_directory(path: &Path, directory: &File) -> io::Result<bool> {
    let directory = directory.metadata()?;
    let current = if_exists(fs::symlink_metadata(path))?;
    Ok(current.is_some_and(|current| {
        (current.dev(), current.ino()) == (directory.dev(), directory.ino())
    }))
}

/// An import in progress. Dropping it before `finish` removes the directory.
pub(super) struct PendingImage<'a> {
    store_dir: &'a StoreDir,
    path: PathBuf,
    /// Exclusive lock: the directory is not a leftover.
    lock: File,
    rootfs: File,
    done: bool,
}

impl PendingImage<'_> {
    pub(super) fn rootfs(&self) -> BorrowedFd<'_> {
        self.rootfs.as_fd()
    }

    /// Publishes the image in one step. A replaced image is removed when its last box has ended.
    pub(super) fn finish(mut self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(record)?;
        fs::write(self.path.join(RECORD), text)?;
        // The name must not survive a power failure that the files do not.
        rustix::fs::syncfs(&self.lock)?;
        let _guard = self.store_dir.guard(FlockOperation::LockExclusive)?;
        // A box can use the image as soon as it has its name.
        rustix::fs::flock(&self.lock, FlockOperation::LockShared)?;
        let destination = self.store_dir.of(&record.name);
        match rustix::fs::renameat_with(CWD, &self.path, CWD, &destination, RenameFlags::NOREPLACE)
        {
            Err(Errno::EXIST) => {}
            moved => {
                moved?;
                self.done = true;
                return Ok(());
            }
        }
        rustix::fs::renameat_with(CWD, &self.path, CWD, &destination, RenameFlags::EXCHANGE)?;
        // The old image now has the temporary name, and may have boxes.
        self.done = true;
        fs::rename(&self.path, self.store_dir.unused_path(GONE)?)
    }
}

impl Drop for PendingImage<'_> {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = boxwood_sys::tree::remove(&self.path)
        {
            tracing::warn!(%error, "failed to remove a failed import; the next start removes it");
        }
    }
}
