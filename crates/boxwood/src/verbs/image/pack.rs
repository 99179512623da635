//! A directory as a tar archive, written while it is read.
//!
//! Symlinks stay symlinks, hard links are written once, owners are numbers. Devices, sockets and pipes are left out.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tar::{Builder, EntryType, Header};

use crate::failure::Failure;

/// The file that could not be packed, and why.
#[derive(Debug)]
pub(super) struct PackError {
    path: PathBuf,
    source: io::Error,
}

impl PackError {
    /// Returns true if the upload ended first. The daemon's response says why.
    pub(super) fn is_unread(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        let denied = error.source.kind() == io::ErrorKind::PermissionDenied;
        let message = format!("cannot pack `{}`", error.path.display());
        let hint = denied.then(|| "run it as a user who may read the whole directory".to_owned());
        Self::local(message, error.source).maybe_hint(hint)
    }
}

pub(super) fn pack(directory: &Path, out: &mut dyn Write) -> Result<(), PackError> {
    let mut packer = Packer {
        archive: Builder::new(out),
        linked: HashMap::new(),
    };
    // A list instead of recursion, because directories may be nested deeply.
    let mut waiting = vec![PathBuf::new()];
    while let Some(relative) = waiting.pop() {
        let path = directory.join(&relative);
        let failed = |source| PackError {
            path: path.clone(),
            source,
        };
        // The directory itself may be a link.
        let metadata = if relative.as_os_str().is_empty() {
            fs::metadata(&path)
        } else {
            fs::symlink_metadata(&path)
        };
        let metadata = metadata.map_err(failed)?;
        packer.add(&path, &relative, &metadata).map_err(failed)?;
        if metadata.is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path).map_err(failed)? {
                names.push(entry.map_err(failed)?.file_name());
            }
            // Reversed, because the next one is taken from the end.
            names.sort_by(|one, other| other.cmp(one));
            waiting.extend(names.into_iter().map(|name| relative.join(name)));
        }
    }
    let finished = packer.archive.into_inner().and_then(Write::flush);
    finished.map_err(|source| PackError {
        path: directory.to_owned(),
        source,
    })
}

struct Packer<'a> {
    archive: Builder<&'a mut dyn Write>,
    /// The first path of each file with several hard links.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl Packer<'_> {
    fn add(&mut self, path: &Path, relative: &Path, metadata: &Metadata) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_metadata(metadata);
        if metadata.is_dir() {
            let name = Path::new("./").join(relative);
            return self.archive.append_data(&mut header, name, io::empty());
        }
        if metadata.is_symlink() {
            header.set_size(0);
            let target = fs::read_link(path)?;
            return self.archive.append_link(&mut header, relative, target);
        }
        if !metadata.is_file() {
            return Ok(());
        }
        let id = (metadata.dev(), metadata.ino());
        if let Some(first) = self.linked.get(&id) {
            header.set_size(0);
            header.set_entry_type(EntryType::Link);
            return self.archive.append_link(&mut header, relative, first);
        }
        // The path may have been replaced: links are not followed, and pipes are not waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(());
        }
        header.set_metadata(&metadata);
        // Exactly as many bytes as the header announces, even if the file grows meanwhile.
        let mut content = file.take(metadata.len());
        self.archive
            .append_data(&mut header, relative, &mut content)?;
        if content.limit() > 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        if metadata.nlink() > 1 {
            self.linked.insert(id, relative.to_owned());
        }
        Ok(())
    }
}
