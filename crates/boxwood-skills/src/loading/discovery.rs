//! Finds skills in directories.
//!
//! Links to directories are not followed, because they could lead outside. File contents are not read.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::beneath::{self, Links, staging};

/// In order of precedence.
pub(crate) const ENTRY_FILES: [&str; 2] = ["SKILL.md", "skill.md"];
/// Search depth below the root of the store.
pub(crate) const STORE_DEPTH: usize = 6;
/// Search depth below an imported directory or in an archive.
pub(crate) const SCAN_DEPTH: usize = 2;

#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Skill {
        entry: &'static str,
    },
    Branch {
        children: Vec<OsString>,
        complete: bool,
    },
}

/// Also returns an entry that has the name of an entry file but is not a regular file.
pub(crate) fn examine(
    dir: BorrowedFd<'_>,
    max_children: usize,
) -> io::Result<(Seen, Option<&'static str>)> {
    let (entry, unusable) = find_entry(dir)?;
    let seen = match entry {
        Some(entry) => Seen::Skill { entry },
        None => subdirectories(dir, max_children)?,
    };
    Ok((seen, unusable))
}

/// The entry file, and an entry with that name that is not a regular file.
pub(crate) fn find_entry(
    dir: BorrowedFd<'_>,
) -> io::Result<(Option<&'static str>, Option<&'static str>)> {
    let mut unusable = None;
    for name in ENTRY_FILES {
        match beneath::stat_entry(dir, Path::new(name)) {
            Ok(stat) if beneath::is_regular(&stat) => return Ok((Some(name), unusable)),
            Ok(stat) if beneath::is_link(&stat) && leads_to_file(dir, name) => {
                return Ok((Some(name), unusable));
            }
            // Directories with this name are ignored.
            Ok(stat) if beneath::is_directory(&stat) => {}
            Ok(_) => unusable = unusable.or(Some(name)),
            Err(error) if beneath::is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((None, unusable))
}

fn leads_to_file(dir: BorrowedFd<'_>, name: &str) -> bool {
    beneath::open_path(dir, Path::new(name), Links::Inside)
        .and_then(|file| Ok(rustix::fs::fstat(file)?))
        .is_ok_and(|stat| beneath::is_regular(&stat))
}

fn subdirectories(dir: BorrowedFd<'_>, max_children: usize) -> io::Result<Seen> {
    let mut children: Vec<OsString> = Vec::new();
    let mut complete = true;
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if matches!(bytes, b"." | b"..") || staging::is_staging_name(bytes) {
            continue;
        }
        let name: OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec());
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => beneath::stat_entry(dir, Path::new(&name))
                .is_ok_and(|stat| beneath::is_directory(&stat)),
            _ => false,
        };
        if !is_directory {
            continue;
        }
        if children.len() == max_children {
            complete = false;
            break;
        }
        children.push(name);
    }
    children.sort();
    Ok(Seen::Branch { children, complete })
}

/// A package below some directory, by its relative path (empty for the directory itself).
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) entry: &'static str,
}

/// Breadth first, each level sorted by name. Unreadable directories are skipped.
pub(crate) fn search(
    top: BorrowedFd<'_>,
    max_depth: usize,
    max_directories: usize,
) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut queue = VecDeque::from([(PathBuf::new(), 0)]);
    let mut examined_count = 0;
    while let Some((path, depth)) = queue.pop_front() {
        examined_count += 1;
        if examined_count > max_directories {
            break;
        }
        let examined = beneath::open_dir(top, &path, Links::Never)
            .and_then(|dir| examine(dir.as_fd(), max_directories));
        let seen = match examined {
            Ok((seen, _)) => seen,
            Err(error) if depth == 0 => return Err(error),
            Err(_) => continue,
        };
        match seen {
            Seen::Skill { entry } => found.push(Found { path, entry }),
            Seen::Branch { children, .. } if depth < max_depth => {
                queue.extend(children.iter().map(|child| (path.join(child), depth + 1)));
            }
            Seen::Branch { .. } => {}
        }
    }
    Ok(found)
}
