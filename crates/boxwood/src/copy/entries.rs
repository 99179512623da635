//! Lists a directory of this machine for a copy.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use super::Progress;
use crate::failure::{Failure, Outcome};

/// The directories and regular files in a directory, sorted by name. The others are skipped with a message.
pub(crate) fn entries(
    directory: &Path,
    progress: &Progress,
) -> Outcome<Vec<(String, PathBuf, Metadata)>> {
    let mut found = Vec::new();
    let unreadable = |error| Failure::unreadable(directory, error);
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        // Of the entry itself: a link is not followed.
        let metadata = entry.metadata();
        let metadata = metadata.map_err(|error| Failure::unreadable(&path, error))?;
        let why = match entry.file_name().into_string() {
            Err(_) => "its name is not UTF-8",
            Ok(_) if metadata.is_symlink() => "it is a symbolic link",
            Ok(name) if metadata.is_dir() || metadata.is_file() => {
                found.push((name, path, metadata));
                continue;
            }
            Ok(_) => "it is not a regular file",
        };
        progress.skip(&path.to_string_lossy(), why);
    }
    found.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    Ok(found)
}
