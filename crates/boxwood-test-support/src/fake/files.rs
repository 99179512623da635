//! Files of a fake box, resolved below its root by the kernel.
//!
//! Symlinks are followed inside the box only: `openat2` with `RESOLVE_IN_ROOT` takes the box's directory as root.

use std::fs::File;
use std::os::fd::OwnedFd;

use boxwood_api::{FileEntry, FileKind};
use boxwood_backend::{FileAnswer, FileCall, FileError, FileFault, OpenFor};
use jiff::Timestamp;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, fstat, mkdirat, openat2,
    readlinkat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::boxes::FakeBox;
use super::file_tools;

pub(super) fn answer(fake_box: &FakeBox, call: FileCall) -> Result<FileAnswer, FileError> {
    match call {
        FileCall::Open { path, how } => open(fake_box, &path, how),
        FileCall::Stat { path, follow } => {
            let nofollow = if follow {
                OFlags::empty()
            } else {
                OFlags::NOFOLLOW
            };
            let file = resolve(fake_box, &path, OFlags::PATH | nofollow, Mode::empty())?;
            Ok(FileAnswer::Entry(entry_of(&file, &path)?))
        }
        FileCall::List { path, limit } => list(fake_box, &path, limit),
        FileCall::Mkdir { path, parents } => mkdir(fake_box, &path, parents),
        FileCall::Move {
            from,
            to,
            overwrite,
        } => {
            let (from_parent, from_name) = parent(fake_box, &from)?;
            let (to_parent, to_name) = parent(fake_box, &to)?;
            let flags = if overwrite {
                RenameFlags::empty()
            } else {
                RenameFlags::NOREPLACE
            };
            renameat_with(&from_parent, from_name, &to_parent, to_name, flags)
                .map_err(|error| fault(error, &from))?;
            Ok(FileAnswer::Done)
        }
        FileCall::Remove { path, recursive } => {
            let (directory, name) = parent(fake_box, &path)?;
            remove(&directory, name, recursive).map_err(|error| fault(error, &path))?;
            Ok(FileAnswer::Done)
        }
        FileCall::Tool(tool) => file_tools::answer(fake_box, tool).map(FileAnswer::Tool),
    }
}

fn resolve(
    fake_box: &FakeBox,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, FileError> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(bad_path(path));
    }
    let (base, rest) = fake_box.locate(path);
    let rest = if rest.is_empty() { "." } else { rest };
    let base = File::open(base).map_err(|source| FileError::Step {
        step: "opening the box's root".to_owned(),
        source,
    })?;
    let resolve_flags = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(&base, rest, flags | OFlags::CLOEXEC, mode, resolve_flags)
        .map_err(|error| fault(error, path))
}

/// The directory that holds the last component, and that component.
fn parent<'a>(fake_box: &FakeBox, path: &'a str) -> Result<(OwnedFd, &'a str), FileError> {
    let (directory, name) = path
        .trim_end_matches('/')
        .rsplit_once('/')
        .ok_or_else(|| bad_path(path))?;
    if matches!(name, "" | "." | "..") {
        return Err(bad_path(path));
    }
    let directory = if directory.is_empty() { "/" } else { directory };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    Ok((resolve(fake_box, directory, flags, Mode::empty())?, name))
}

fn open(fake_box: &FakeBox, path: &str, purpose: OpenFor) -> Result<FileAnswer, FileError> {
    let (flags, mode) = match purpose {
        // Opening a pipe must not wait for its other end.
        OpenFor::Read => (OFlags::RDONLY | OFlags::NONBLOCK, 0),
        OpenFor::CreateNew { mode } => (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode),
        OpenFor::Write { mode } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
            (flags, mode)
        }
    };
    let file = resolve(
        fake_box,
        path,
        flags,
        Mode::from_bits_truncate(mode & 0o777),
    )?;
    let entry = entry_of(&file, path)?;
    if entry.kind != FileKind::File {
        return Err(FileError::Fault {
            fault: FileFault::NotAFile,
            path: path.to_owned(),
            text: "not a regular file".to_owned(),
        });
    }
    Ok(FileAnswer::Opened {
        file: File::from(file),
        entry,
    })
}

fn list(fake_box: &FakeBox, path: &str, limit: usize) -> Result<FileAnswer, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = resolve(fake_box, path, flags, Mode::empty())?;
    let failed = |error| fault(error, path);
    let mut entries = Vec::new();
    for found in Dir::read_from(&directory).map_err(failed)? {
        let found = found.map_err(failed)?;
        if matches!(found.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(stat) = statat(&directory, found.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            // Removed since it was listed.
            continue;
        };
        let name = found.file_name().to_string_lossy().into_owned();
        let target = readlinkat(&directory, found.file_name(), Vec::new()).ok();
        let entry_path = format!("{}/{name}", path.trim_end_matches('/'));
        let target = target.map(|target| target.to_string_lossy().into_owned());
        entries.push(entry(name, entry_path, &stat, target));
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let truncated = entries.len() > limit;
    entries.truncate(limit);
    Ok(FileAnswer::Entries { entries, truncated })
}

fn mkdir(fake_box: &FakeBox, path: &str, parents: bool) -> Result<FileAnswer, FileError> {
    let mode = Mode::from_bits_truncate(0o755);
    if parents {
        let ends: Vec<_> = path
            .match_indices('/')
            .map(|(index, _)| index)
            .filter(|index| *index > 0)
            .collect();
        for end in ends {
            let (directory, name) = parent(fake_box, &path[..end])?;
            match mkdirat(&directory, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(fault(error, path)),
            }
        }
    }
    let (directory, name) = parent(fake_box, path)?;
    match mkdirat(&directory, name, mode) {
        Ok(()) => Ok(FileAnswer::Done),
        Err(Errno::EXIST) if parents => {
            // As `mkdir -p`: an existing directory is accepted, a file is not.
            resolve(
                fake_box,
                path,
                OFlags::PATH | OFlags::DIRECTORY,
                Mode::empty(),
            )?;
            Ok(FileAnswer::Done)
        }
        Err(error) => Err(fault(error, path)),
    }
}

fn remove(directory: &OwnedFd, name: &str, recursive: bool) -> Result<(), Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return unlinkat(directory, name, AtFlags::empty());
    }
    if recursive {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inner = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        for found in Dir::read_from(&inner)? {
            let found = found?;
            match found.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) => remove(&inner, name, true)?,
                Err(_) => return Err(Errno::ILSEQ),
            }
        }
    }
    unlinkat(directory, name, AtFlags::REMOVEDIR)
}

fn entry_of(file: &OwnedFd, path: &str) -> Result<FileEntry, FileError> {
    let stat = fstat(file).map_err(|error| fault(error, path))?;
    // An empty path reads the link that the descriptor itself is; anything else has no target.
    let target = readlinkat(file, "", Vec::new())
        .ok()
        .map(|target| target.to_string_lossy().into_owned());
    let name = path
        .rsplit('/')
        .find(|name| !name.is_empty())
        .unwrap_or("/");
    Ok(entry(name.to_owned(), path.to_owned(), &stat, target))
}

fn entry(name: String, path: String, stat: &Stat, symlink_target: Option<String>) -> FileEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    FileEntry {
        name,
        path,
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified_at: Timestamp::from_second(stat.st_mtime).unwrap_or(Timestamp::UNIX_EPOCH),
        symlink_target: symlink_target.filter(|_| kind == FileKind::Symlink),
    }
}

fn bad_path(path: &str) -> FileError {
    FileError::Fault {
        fault: FileFault::BadPath,
        path: path.to_owned(),
        text: "not an absolute path to a file".to_owned(),
    }
}

fn fault(error: Errno, path: &str) -> FileError {
    let fault = match error {
        Errno::NOENT => FileFault::NotFound,
        Errno::EXIST => FileFault::Exists,
        Errno::ACCESS | Errno::PERM => FileFault::Denied,
        Errno::NOTDIR => FileFault::NotADirectory,
        Errno::ISDIR => FileFault::IsADirectory,
        // A pipe without a reader, a socket.
        Errno::NXIO => FileFault::NotAFile,
        Errno::NOTEMPTY => FileFault::NotEmpty,
        Errno::NOSPC | Errno::DQUOT => FileFault::NoSpace,
        Errno::ROFS => FileFault::ReadOnly,
        Errno::LOOP => FileFault::TooManyLinks,
        Errno::NAMETOOLONG | Errno::INVAL => FileFault::BadPath,
        _ => FileFault::Other,
    };
    FileError::Fault {
        fault,
        path: path.to_owned(),
        text: std::io::Error::from(error).to_string(),
    }
}
