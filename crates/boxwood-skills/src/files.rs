//! File operations in a package.
//!
//! Every call opens the directory of the package once and resolves paths below it. A box that has the package mounted
//! for writing can change the contents, but cannot redirect a path outside.

use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use boxwood_api::SkillFile;
use rustix::fs::{AtFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::beneath::staging::{Staging, is_staging_name};
use crate::beneath::{self, Links, atomic};
use crate::loading::discovery::ENTRY_FILES;
use crate::package_path::PackagePath;
use crate::python::universal_newlines;
use crate::store::{Package, SkillStore};
use crate::{
    BinaryFile, FileListing, Oversize, SkillError, TextFile, WrittenFile, changes, loading,
};

impl SkillStore {
    /// One level, sorted by name. Returns at least one entry if there is one, as LangBot Box does.
    pub fn list_files(
        &self,
        name: &str,
        path: &str,
        include_hidden: bool,
        max_entries: usize,
    ) -> Result<FileListing, SkillError> {
        let package = self.package(name)?;
        let path = PackagePath::parse(path, self.limits())?;
        let missing = || SkillError::SubdirectoryNotFound(path.requested().to_owned());
        let dir = beneath::open_dir(package.dir.as_fd(), path.as_path(), Links::Inside)
            .map_err(|error| store_error(error, "list", &path, missing))?;
        let limit = max_entries.clamp(1, self.limits().max_listed_entries.max(1));
        let names = first_names(dir.as_fd(), include_hidden, limit)
            .map_err(|error| SkillError::io("list", path.as_path(), error))?;
        // Entries that were removed meanwhile are skipped.
        let items = names.iter();
        let entries: Vec<_> = items
            .filter_map(|name| item(&package, dir.as_fd(), &path, name))
            .collect();
        Ok(FileListing {
            skill: package.skill.name.clone(),
            base_path: path.as_str().to_owned(),
            truncated: entries.len() >= max_entries || entries.len() >= limit,
            entries,
        })
    }

    pub fn read_text(&self, name: &str, path: &str) -> Result<TextFile, SkillError> {
        let file = self.read_bytes(name, path)?;
        let content = loading::text(&file.path, &file.content)?;
        Ok(TextFile {
            content: universal_newlines(content).into_owned(),
            skill: file.skill,
            path: file.path,
        })
    }

    pub fn read_bytes(&self, name: &str, path: &str) -> Result<BinaryFile, SkillError> {
        let package = self.package(name)?;
        let path = PackagePath::parse(path, self.limits())?;
        if path.is_root() {
            return Err(SkillError::PathEscapes);
        }
        let (file, stat) = open_regular(&package, &path)?;
        let limit = self.limits().max_file_bytes;
        let content = beneath::read_bounded(&file, limit)
            .map_err(|error| SkillError::io("read", path.as_path(), error))?
            .ok_or_else(|| SkillError::too_large(Oversize::FileBytes, limit))?;
        Ok(BinaryFile {
            skill: package.skill.name.clone(),
            path: path.as_str().to_owned(),
            content,
            executable: beneath::is_executable(&stat),
        })
    }

    /// Replaces a file atomically, or creates it and its parent directories. A file behind a link is written in place.
    pub fn write(&self, name: &str, path: &str, content: &[u8]) -> Result<WrittenFile, SkillError> {
        let _change = self.change();
        let package = self.package(name)?;
        let path = PackagePath::parse(path, self.limits())?;
        let limit = self.limits().max_file_bytes;
        Oversize::FileBytes.check(content.len(), limit)?;
        if path.as_str() == package.skill.entry_file || path.as_str() == ENTRY_FILES[0] {
            // An unreadable entry file would remove the skill from the listing.
            changes::check_text(loading::text(path.as_str(), content)?, self.limits())?;
        }
        let (parent, last) = path.split().ok_or(SkillError::PathEscapes)?;
        let failed = |error| SkillError::io("write", path.as_path(), error);
        let dir = make_parents(&package, &parent, &path)?;
        if !write_through_link(&package, dir.as_fd(), last, &path, content)? {
            atomic::write(dir.as_fd(), last, content).map_err(failed)?;
        }
        Ok(WrittenFile {
            skill: package.skill.name.clone(),
            path: path.as_str().to_owned(),
            bytes_written: content.len() as u64,
        })
    }

    /// Removes a file, a link or a directory tree. The entry file cannot be removed.
    pub fn delete_file(&self, name: &str, path: &str) -> Result<(), SkillError> {
        let _change = self.change();
        let package = self.package(name)?;
        let path = PackagePath::parse(path, self.limits())?;
        let (parent, last) = changeable(&path, &[&package.skill.entry_file])?;
        let missing = || SkillError::FileNotFound(path.as_str().to_owned());
        let failed = |error: io::Error| store_error(error, "delete", &path, missing);
        let dir = beneath::open_dir(package.dir.as_fd(), &parent, Links::Inside).map_err(failed)?;
        let stat = beneath::stat_entry(dir.as_fd(), last).map_err(failed)?;
        if beneath::is_directory(&stat) {
            let root = self.make_root()?;
            let staging = Staging::begin(root.dir.as_fd()).map_err(failed)?;
            staging.discard(dir.as_fd(), last).map_err(failed)?;
        } else {
            rustix::fs::unlinkat(&dir, last, AtFlags::empty())
                .map_err(|error| failed(error.into()))?;
        }
        rustix::fs::fsync(&dir).map_err(|error| failed(error.into()))
    }

    /// Moves a file or a directory inside its package. The target must not exist.
    pub fn move_file(&self, name: &str, from: &str, to: &str) -> Result<(), SkillError> {
        let _change = self.change();
        let package = self.package(name)?;
        let from = PackagePath::parse(from, self.limits())?;
        let to = PackagePath::parse(to, self.limits())?;
        let (from_parent, from_last) = changeable(&from, &[&package.skill.entry_file])?;
        let (to_parent, to_last) = changeable(&to, &ENTRY_FILES)?;
        let missing = || SkillError::FileNotFound(from.as_str().to_owned());
        let failed = |error: io::Error| store_error(error, "move", &from, missing);
        let source =
            beneath::open_dir(package.dir.as_fd(), &from_parent, Links::Inside).map_err(failed)?;
        beneath::stat_entry(source.as_fd(), from_last).map_err(failed)?;
        let target = make_parents(&package, &to_parent, &to)?;
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&source, from_last, &target, to_last, flags) {
            Ok(()) => {}
            Err(Errno::EXIST | Errno::NOTEMPTY) => {
                return Err(SkillError::FileExists(to.as_str().to_owned()));
            }
            // A directory cannot be moved into itself.
            Err(Errno::INVAL) => {
                let (from, to) = (from.as_str(), to.as_str());
                return Err(SkillError::PathNotUsable(format!("{to} is inside {from}")));
            }
            Err(error) => return Err(failed(error.into())),
        }
        rustix::fs::fsync(&source)
            .and_then(|()| rustix::fs::fsync(&target))
            .map_err(|error| failed(error.into()))
    }
}

/// Maps an I/O error to an error of the store.
fn store_error(
    error: io::Error,
    operation: &'static str,
    path: &PackagePath,
    missing: impl Fn() -> SkillError,
) -> SkillError {
    if beneath::leads_out(&error) {
        SkillError::PathEscapes
    } else if beneath::is_missing(&error) {
        missing()
    } else {
        SkillError::io(operation, path.as_path(), error)
    }
}

fn open_regular(package: &Package, path: &PackagePath) -> Result<(OwnedFd, Stat), SkillError> {
    let missing = || SkillError::FileNotFound(path.as_str().to_owned());
    let file = match beneath::open_file(package.dir.as_fd(), path.as_path(), Links::Inside) {
        Ok(file) => file,
        // `ENXIO`: a socket, or a device without a driver.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => return Err(missing()),
        Err(error) => return Err(store_error(error, "read", path, missing)),
    };
    let stat =
        rustix::fs::fstat(&file).map_err(|error| SkillError::io("read", path.as_path(), error))?;
    if beneath::is_regular(&stat) {
        Ok((file, stat))
    } else {
        Err(missing())
    }
}

/// The first names in order. Memory use does not depend on the size of the directory.
fn first_names(
    dir: BorrowedFd<'_>,
    include_hidden: bool,
    limit: usize,
) -> io::Result<Vec<OsString>> {
    let mut first: BinaryHeap<OsString> = BinaryHeap::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        let is_temporary = bytes.starts_with(atomic::PREFIX.as_bytes()) || is_staging_name(bytes);
        let hidden = !include_hidden && bytes.starts_with(b".");
        if matches!(bytes, b"." | b"..") || is_temporary || hidden {
            continue;
        }
        first.push(std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec()));
        if first.len() > limit {
            first.pop();
        }
    }
    Ok(first.into_sorted_vec())
}

fn item(
    package: &Package,
    dir: BorrowedFd<'_>,
    base: &PackagePath,
    name: &OsString,
) -> Option<SkillFile> {
    let own = beneath::stat_entry(dir, Path::new(name)).ok()?;
    let is_symlink = beneath::is_link(&own);
    let relative = if base.is_root() {
        PathBuf::from(name)
    } else {
        base.as_path().join(name)
    };
    // A link that stays inside is shown as its target, any other as a link.
    let target = is_symlink
        .then(|| beneath::open_path(package.dir.as_fd(), &relative, Links::Inside).ok())
        .flatten()
        .and_then(|file| rustix::fs::fstat(file).ok());
    let stat = target.unwrap_or(own);
    let is_dir = beneath::is_directory(&stat);
    Some(SkillFile {
        path: relative.to_string_lossy().into_owned(),
        name: name.to_string_lossy().into_owned(),
        is_dir,
        size: (!is_dir).then(|| beneath::size(&stat)),
        is_symlink,
        executable: beneath::is_regular(&stat) && beneath::is_executable(&stat),
    })
}

/// Checks a path to remove or move: not the package itself and not a protected file.
fn changeable<'a>(
    path: &'a PackagePath,
    protected: &[&str],
) -> Result<(PathBuf, &'a Path), SkillError> {
    let name = path.as_str();
    if protected.contains(&name) {
        return Err(SkillError::EntryFileNeeded(name.to_owned()));
    }
    path.split().ok_or(SkillError::PathEscapes)
}

fn make_parents(
    package: &Package,
    parent: &Path,
    path: &PackagePath,
) -> Result<OwnedFd, SkillError> {
    let root = package.dir.as_fd();
    let missing = || SkillError::SubdirectoryNotFound(parent.to_string_lossy().into_owned());
    let failed = |error: io::Error| store_error(error, "write", path, missing);
    // Resolved from the root of the package, because an inner link may contain `..`.
    let mut current = PathBuf::new();
    let mut dir = beneath::open_dir(root, &current, Links::Never).map_err(failed)?;
    for part in parent {
        current.push(part);
        dir = match beneath::open_dir(root, &current, Links::Inside) {
            Ok(next) => next,
            Err(error) if beneath::is_missing(&error) => {
                atomic::make_dir(dir.as_fd(), Path::new(part)).map_err(failed)?;
                beneath::open_dir(root, &current, Links::Inside).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
    }
    Ok(dir)
}

/// Writes to the file behind a link that stays inside, in place. Returns false if there is no such link, or if nothing
/// is behind it: then the file is created or replaced.
fn write_through_link(
    package: &Package,
    dir: BorrowedFd<'_>,
    last: &Path,
    path: &PackagePath,
    content: &[u8],
) -> Result<bool, SkillError> {
    let failed = |error| SkillError::io("write", path.as_path(), error);
    let not_regular = || SkillError::FileNotRegular(path.as_str().to_owned());
    match beneath::stat_entry(dir, last) {
        Ok(stat) if beneath::is_link(&stat) => {}
        Ok(stat) if beneath::is_directory(&stat) => return Err(not_regular()),
        Ok(_) => return Ok(false),
        Err(error) if beneath::is_missing(&error) => return Ok(false),
        Err(error) => return Err(failed(error)),
    }
    let mut file = match beneath::open_for_writing(package.dir.as_fd(), path.as_path()) {
        Ok(file) => file,
        Err(error) if beneath::is_missing(&error) => return Ok(false),
        Err(error) if beneath::leads_out(&error) => return Err(SkillError::PathEscapes),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::ISDIR | Errno::NXIO) => return Err(not_regular()),
            _ => return Err(failed(error)),
        },
    };
    let metadata = file.metadata().map_err(failed)?;
    // Another name of the file may be outside of the package.
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(not_regular());
    }
    file.set_len(0)
        .and_then(|()| file.write_all(content))
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    Ok(true)
}
