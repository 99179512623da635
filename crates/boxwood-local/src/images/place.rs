//! Directories of images, and who holds them.
//!
//! The locks are the kernel's, on the directories themselves: they hold between processes, and end
//! with the process that has them.

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
/// How often a directory may be taken away between being found and being locked.
const ATTEMPTS: usize = 16;

pub(super) struct Places {
    dir: PathBuf,
}

/// An image that stays for as long as this is held.
#[derive(Debug)]
pub struct ImageLease {
    rootfs: PathBuf,
    handle: OwnedFd,
    /// Shared; whoever removes the image wants it exclusively.
    held: File,
}

impl ImageLease {
    pub fn rootfs(&self) -> &Path {
        &self.rootfs
    }

    /// The same directory, opened as a place (`O_PATH`).
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.handle.try_clone()
    }

    /// What holds the image, and nothing else. The lock is on the open directory: whoever has a copy
    /// of the descriptor holds the image as well, in whichever process.
    pub(crate) fn into_held(self) -> OwnedFd {
        self.held.into()
    }
}

/// What became of an image that was to go.
pub(super) enum Taken {
    Away,
    InUse,
    NotThere,
}

impl Places {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Readable, bounded, and different for different names.
    fn of(&self, name: &ImageName) -> PathBuf {
        const READABLE: usize = 60;
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let words: String = name.as_str().chars().take(READABLE).map(plain).collect();
        let digest = Sha256::digest(name.as_str().as_bytes());
        let mut hex = String::new();
        for byte in &digest[..16] {
            use std::fmt::Write as _;
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
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
                // Somebody removes it.
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            if is_still(&place, &held)? {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let handle = rustix::fs::openat(&held, ROOTFS, flags, Mode::empty())?;
                return Ok(Some(ImageLease {
                    // A box without root opens it again, where no link may be on the way.
                    rootfs: fs::canonicalize(place.join(ROOTFS))?,
                    handle,
                    held,
                }));
            }
        }
        Err(io::Error::other("the image is being replaced all the time"))
    }

    pub(super) fn records(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in entries(&self.dir)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // One that is going just now, or that somebody else put here: no image of ours.
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

    /// Makes room for an import.
    pub(super) fn begin(&self) -> io::Result<Making<'_>> {
        let mut private = DirBuilder::new();
        private.mode(0o700).recursive(true).create(&self.dir)?;
        // While this is held nobody sweeps, so the new directory is locked before it is looked at.
        let _guard = self.guard(FlockOperation::LockShared)?;
        let place = self.unused(NEW)?;
        DirBuilder::new().mode(0o700).create(&place)?;
        let held = File::open(&place)?;
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        let root = place.join(ROOTFS);
        DirBuilder::new().mode(0o755).create(&root)?;
        let rootfs = File::open(&root)?;
        // Whatever the umask was: the commands of a box are somebody else.
        rustix::fs::fchmod(&rootfs, Mode::from_raw_mode(0o755))?;
        Ok(Making {
            places: self,
            place,
            held,
            rootfs,
            done: false,
        })
    }

    pub(super) fn take_away(&self, name: &ImageName) -> io::Result<Taken> {
        let place = self.of(name);
        for _ in 0..ATTEMPTS {
            let Some(held) = open(&place)? else {
                return Ok(Taken::NotThere);
            };
            match rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Taken::InUse),
                Err(errno) => return Err(errno.into()),
            }
            if is_still(&place, &held)? {
                match fs::rename(&place, self.unused(GONE)?) {
                    // An import replaced it since, and that image was removed as well.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    moved => return moved.map(|()| Taken::Away),
                }
            }
        }
        Err(io::Error::other("the image is being replaced all the time"))
    }

    pub(super) fn has_leftovers(&self) -> bool {
        self.leftovers().is_ok_and(|places| !places.is_empty())
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

    /// A name nobody has: the pid tells processes apart, the counter what one of them does.
    fn unused(&self, prefix: &str) -> io::Result<PathBuf> {
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

/// Whether the path leads to what was opened. It may have been moved before it was locked.
fn is_still(place: &Path, held: &File) -> io::Result<bool> {
    let held = held.metadata()?;
    match fs::symlink_metadata(place) {
        Ok(now) => Ok((now.dev(), now.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// An image that is being made. Dropped before it is finished, it goes.
pub(super) struct Making<'a> {
    places: &'a Places,
    place: PathBuf,
    /// Exclusive: nobody takes it for something a killed process left.
    held: File,
    rootfs: File,
    done: bool,
}

impl Making<'_> {
    pub(super) fn rootfs(&self) -> BorrowedFd<'_> {
        self.rootfs.as_fd()
    }

    /// Puts the image in its place in one step. What was there goes when the last box has ended.
    pub(super) fn finish(mut self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(record)?;
        fs::write(self.place.join(RECORD), text)?;
        // A name must not survive a power failure that the files behind it do not.
        rustix::fs::syncfs(&self.held)?;
        self.share()?;
        let place = self.places.of(&record.name);
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
                    // The old one has our temporary name now, and perhaps boxes.
                    self.done = true;
                    return match fs::rename(&self.place, self.places.unused(GONE)?) {
                        // It had none, and a sweep was faster.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                        moved => moved,
                    };
                }
                // Removed just now.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::other("the image is being replaced all the time"))
    }

    /// A box that finds the image the moment it has its name must get it. Nobody sweeps meanwhile:
    /// the kernel lets go of a lock before it takes the other.
    fn share(&self) -> io::Result<()> {
        let _guard = self.places.guard(FlockOperation::LockShared)?;
        Ok(rustix::fs::flock(&self.held, FlockOperation::LockShared)?)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = fs::remove_dir_all(&self.place)
        {
            tracing::warn!(%error, "a failed import left its directory; the next start removes it");
        }
    }
}
