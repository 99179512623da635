//! Validates a package before it is published.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::FileType;

use crate::beneath;
use crate::copying::stays_inside;
use crate::{Limits, SkillError, Warning, discovery, loading};

pub(crate) fn validate(
    dir: BorrowedFd<'_>,
    path: &Path,
    limits: &Limits,
) -> Result<Vec<Warning>, SkillError> {
    let (entry, unusable) =
        discovery::find_entry(dir).map_err(|error| SkillError::io("read", path, error))?;
    let Some(entry) = entry else {
        return Err(SkillError::NoEntryFile {
            path: path.to_owned(),
        });
    };
    let mut warnings = loading::load(dir, entry, path, limits)?.skill.warnings;
    if let Some(name) = unusable {
        warnings.push(Warning::NotTaken {
            path: name.to_owned(),
        });
    }
    beneath::walk(dir, "read", limits, |found| {
        let depth = found.path.components().count() - 1;
        let taken = match FileType::from_raw_mode(found.stat.st_mode) {
            FileType::RegularFile | FileType::Directory => true,
            FileType::Symlink => rustix::fs::readlinkat(found.dir, found.name, Vec::new())
                .is_ok_and(|target| stays_inside(target.to_bytes(), depth)),
            _ => false,
        };
        if !taken {
            let path = found.path.to_string_lossy().into_owned();
            warnings.push(Warning::NotTaken { path });
        }
        Ok(true)
    })?;
    Ok(warnings)
}
