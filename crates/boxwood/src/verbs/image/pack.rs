//! A directory as a tar archive, written while it is read.
//!
//! Symlinks stay symlinks, hard links are written once, owners are numbers. What an image cannot have
//! (devices, sockets, pipes) is left out.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use crate::failure::Failure;

/// Which file, and what is wrong with it.
#[derive(Debug)]
pub(super) struct PackError {
    path: PathBuf,
    source: io::Error,
}

impl PackError {
    /// The daemon had heard enough before the end; its answer says why.
    pub(super) fn is_unread(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        let denied = error.source.kind() == io::ErrorKind::PermissionDenied;
        let what = format!("cannot pack `{}`", error.path.display());
        let hint = denied.then(|| "run it as a user who may read all of the directory".to_owned());
        Self::local(what, error.source).maybe_hint(hint)
    }
}

pub(super) fn pack(directory: &Path, out: &mut impl Write) -> Result<(), PackError> {
    let mut packer = Packer {
        archive: Builder::new(out),
        linked: HashMap::new(),
    };
    // A list instead of recursion: how deep a directory goes is not ours to say.
    let mut waiting = vec![PathBuf::new()];
    while let Some(inside) = waiting.pop() {
        let path = directory.join(&inside);
        let failed = |source| PackError {
            path: path.clone(),
            source,
        };
        // The directory itself may be reached by a link.
        let about = if inside.as_os_str().is_empty() {
            fs::metadata(&path)
        } else {
            fs::symlink_metadata(&path)
        };
        let about = about.map_err(failed)?;
        packer.add(&path, &inside, &about).map_err(failed)?;
        if about.is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path).map_err(failed)? {
                names.push(entry.map_err(failed)?.file_name());
            }
            // Last first: the next one is taken from the end.
            names.sort_by(|one, other| other.cmp(one));
            waiting.extend(names.into_iter().map(|name| inside.join(name)));
        }
    }
    let finished = packer.archive.into_inner().and_then(Write::flush);
    finished.map_err(|source| PackError {
        path: directory.to_owned(),
        source,
    })
}

struct Packer<W: Write> {
    archive: Builder<W>,
    /// Where a file with several names was written first.
    linked: HashMap<FileId, PathBuf>,
}

impl<W: Write> Packer<W> {
    fn add(&mut self, path: &Path, inside: &Path, about: &Metadata) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_metadata(about);
        if about.is_dir() {
            let name = Path::new("./").join(inside);
            return self.archive.append_data(&mut header, name, io::empty());
        }
        if about.is_symlink() {
            header.set_size(0);
            return self
                .archive
                .append_link(&mut header, inside, fs::read_link(path)?);
        }
        if !about.is_file() {
            return Ok(());
        }
        if let Some(first) = file_id(about).and_then(|id| self.linked.get(&id)) {
            header.set_size(0);
            header.set_entry_type(EntryType::Link);
            return self.archive.append_link(&mut header, inside, first);
        }
        let file = open(path)?;
        // What was opened, not what had the name a moment ago.
        let about = file.metadata()?;
        if !about.is_file() {
            return Ok(());
        }
        header.set_metadata(&about);
        let content = Exactly {
            left: about.len(),
            file,
        };
        self.archive.append_data(&mut header, inside, content)?;
        if let Some(id) = file_id(&about) {
            self.linked.insert(id, inside.to_owned());
        }
        Ok(())
    }
}

/// As many bytes as the header has promised: a file may grow or shrink while it is read.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let read = self.file.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(unix)]
type FileId = (u64, u64);
#[cfg(not(unix))]
type FileId = ();

/// What tells a file with several names from others.
#[cfg(unix)]
fn file_id(about: &Metadata) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    (about.nlink() > 1).then(|| (about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn file_id(_about: &Metadata) -> Option<FileId> {
    None
}

/// Never through a link, and never waiting for the writer of a pipe.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}
