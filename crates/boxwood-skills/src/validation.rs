//! A package looked at by somebody who wants to publish it.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::beneath::{self, Links};
use crate::copying::stays_inside;
use crate::{Limits, Oversize, SkillError, Warning, discovery, loading};

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
    let mut queue = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(path) = queue.pop() {
        let failed = |error| SkillError::io("read", &path, error);
        let here = beneath::open_dir(dir, &path, Links::Never).map_err(failed)?;
        let listed = beneath::names(here.as_fd(), limits.max_entries - seen).map_err(failed)?;
        if !listed.complete {
            return Err(SkillError::too_large(Oversize::Entries, limits.max_entries));
        }
        seen += listed.names.len();
        for name in &listed.names {
            let stat = beneath::stat_entry(here.as_fd(), Path::new(name)).map_err(failed)?;
            let inner = path.join(name);
            let taken = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => true,
                FileType::Directory => {
                    queue.push(inner.clone());
                    true
                }
                FileType::Symlink => rustix::fs::readlinkat(&here, name, Vec::new())
                    .is_ok_and(|to| stays_inside(to.to_bytes(), path.components().count())),
                _ => false,
            };
            if !taken {
                warnings.push(Warning::NotTaken {
                    path: inner.to_string_lossy().into_owned(),
                });
            }
        }
    }
    Ok(warnings)
}
