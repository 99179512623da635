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
    held: File,
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
        self.held.into()
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
        const READABLE: usize = 60;
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let words: String = name.as_str().chars().take(READABLE).map(plain).collect();
        let digest = Sha256::digest(name.as_str().as_bytes());
        let hex = data_encoding::HEXLOWER.encode(&digest[..16]);
        self.dir.join(format!("{words}-{hex}"))
    }

    pub(super) fn find(&self, name: &ImageName) -> io::Result<Option<ImageLease>> {
        let place = self.of(name);
        for _ in 0..ATTEMPTS {
            let Some(held) = open(&place)? else {
                return Ok(None);
            };
            match rustix::fs::flock(&held, FlockOperation::NonBlockingLockShared) {
                Ok(()) => {}
                // It is being removed.
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            if is_same_directory(&place, &held)? {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let handle = rustix::fs::openat(&held, ROOTFS, flags, Mode::empty())?;
                return Ok(Some(ImageLease {
                    // A rootless box opens it again and follows no symlinks.
                    rootfs: fs::canonicalize(place.join(ROOTFS))?,
                    handle,
                    held,
                }));
            }
        }
        Err(io::Error::other(
            "the image is replaced repeatedly; try again",
        ))
    }

    pub(super) fn records(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in entries(&self.dir)? {
            let entry = entry?;
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
        let place = self.unused_path(NEW)?;
        DirBuilder::new().mode(0o700).create(&place)?;
        let held = File::open(&place)?;
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        let root = place.join(ROOTFS);
        DirBuilder::new().mode(0o755).create(&root)?;
        let rootfs = File::open(&root)?;
        // Regardless of the umask: commands of a box have another uid.
        rustix::fs::fchmod(&rootfs, Mode::from_raw_mode(0o755))?;
        Ok(PendingImage {
            store_dir: self,
            place,
            held,
            rootfs,
            done: false,
        })
    }

    pub(super) fn remove(&self, name: &ImageName) -> io::Result<Removal> {
        let place = self.of(name);
        for _ in 0..ATTEMPTS {
            let Some(held) = open(&place)? else {
                return Ok(Removal::NotFound);
            };
            match rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Removal::InUse),
                Err(errno) => return Err(errno.into()),
            }
            if is_same_directory(&place, &held)? {
                match fs::rename(&place, self.unused_path(GONE)?) {
                    // A concurrent import replaced it, and that image was removed as well.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    moved => return moved.map(|()| Removal::Removed),
                }
            }
        }
        Err(io::Error::other(
            "the image is replaced repeatedly; try again",
        ))
    }

    pub(super) fn has_leftovers(&self) -> bool {
        self.leftovers()
            .is_ok_and(|store_dir| !store_dir.is_empty())
    }

    pub(super) fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in entries(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(NEW.as_bytes()) || name.starts_with(GONE.as_bytes()) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    pub(super) fn guard(&self, how: FlockOperation) -> io::Result<File> {
        let guard = File::open(&self.dir)?;
        rustix::fs::flock(&guard, how)?;
        Ok(guard)
    }

    /// An unused path: the pid distinguishes processes, the counter operations of one process.
    fn unused_path(&self, prefix: &str) -> io::Result<PathBuf> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{prefix}{}-{number}", std::process::id());
            let place = self.dir.join(name);
            if !place.try_exists()? {
                return Ok(place);
            }
        }
    }
}

fn entries(dir: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<fs::DirEntry>>>> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(Box::new(entries)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(std::iter::empty())),
        Err(error) => Err(error),
    }
}

fn open(place: &Path) -> io::Result<Option<File>> {
    match File::open(place) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if the path still leads to the opened directory, which may have been moved before it was locked.
fn is_same_directory(place: &Path, held: &File) -> io::Result<bool> {
    let held = held.metadata()?;
    match fs::symlink_metadata(place) {
        Ok(now) => Ok((now.dev(), now.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// An import in progress. Dropping it before `finish` removes the directory.
pub(super) struct PendingImage<'a> {
    store_dir: &'a StoreDir,
    place: PathBuf,
    /// Exclusive lock: the directory is not a leftover.
    held: File,
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
        fs::write(self.place.join(RECORD), text)?;
        // The name must not survive a power failure that the files do not.
        rustix::fs::syncfs(&self.held)?;
        self.share()?;
        let place = self.store_dir.of(&record.name);
        for _ in 0..ATTEMPTS {
            match rustix::fs::renameat_with(CWD, &self.place, CWD, &place, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    self.done = true;
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            match rustix::fs::renameat_with(CWD, &self.place, CWD, &place, RenameFlags::EXCHANGE) {
                Ok(()) => {
                    // The old image now has the temporary name, and may have boxes.
                    self.done = true;
                    return match fs::rename(&self.place, self.store_dir.unused_path(GONE)?) {
                        // It had none, and a cleanup was faster.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                        moved => moved,
                    };
                }
                // It was removed in the meantime.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::other(
            "the image is replaced repeatedly; try again",
        ))
    }

    /// Downgrades to a shared lock, so that a box can use the image as soon as it has its name. The
    /// downgrade is not atomic, so cleanups are locked out meanwhile.
    fn share(&self) -> io::Result<()> {
        let _guard = self.store_dir.guard(FlockOperation::LockShared)?;
        Ok(rustix::fs::flock(&self.held, FlockOperation::LockShared)?)
    }
}

impl Drop for PendingImage<'_> {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = boxwood_sys::tree::remove(&self.place)
        {
            tracing::warn!(%error, "failed to remove a failed import; the next start removes it");
        }
    }
}
