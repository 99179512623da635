//! Copies an imported directory into the store, and checks what could be copied.
//!
//! The source may change during the copy. Files, directories and links that stay inside are copied, with the two
//! modes that packages use. Links that lead outside, FIFOs, devices and sockets are skipped with a warning.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use boxwood_api::SkillWarning;
use rustix::fs::FileType;

use crate::beneath::{self, Found, Links, atomic};
use crate::loading::{discovery, rules};
use crate::{Limits, Oversize, SkillError, loading};

pub(crate) fn copy_tree(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    limits: &Limits,
) -> Result<Vec<SkillWarning>, SkillError> {
    let mut bytes = 0;
    let mut warnings = Vec::new();
    beneath::walk(source, "copy", limits, |found| {
        let failed = |error: io::Error| SkillError::io("copy", &found.path, error);
        let path = found.path.to_string_lossy().into_owned();
        crate::package_path::check_size(&path, limits)?;
        let parent = found.path.parent().unwrap_or(Path::new(""));
        let to = beneath::open_dir(target, parent, Links::Never).map_err(failed)?;
        let is_copied = match FileType::from_raw_mode(found.stat.st_mode) {
            FileType::Directory => {
                atomic::make_dir(to.as_fd(), found.name).map_err(failed)?;
                true
            }
            FileType::RegularFile => copy_file(found, to.as_fd(), limits, &mut bytes)?,
            FileType::Symlink => {
                let link = rustix::fs::readlinkat(found.dir, found.name, Vec::new())
                    .map_err(|error| failed(error.into()))?;
                let inside = stays_inside(link.to_bytes(), parent.components().count());
                if inside {
                    rustix::fs::symlinkat(link.as_c_str(), &to, found.name)
                        .map_err(|error| failed(error.into()))?;
                }
                inside
            }
            _ => false,
        };
        if !is_copied {
            warnings.push(rules::not_taken(&path));
        }
        Ok(true)
    })?;
    Ok(warnings)
}

/// Returns false if the entry is no longer a regular file.
fn copy_file(
    found: &Found<'_>,
    to: BorrowedFd<'_>,
    limits: &Limits,
    bytes: &mut u64,
) -> Result<bool, SkillError> {
    let failed = |error: io::Error| SkillError::io("copy", &found.path, error);
    let source = beneath::open_file(found.dir, found.name, Links::Never).map_err(failed)?;
    let stat = rustix::fs::fstat(&source).map_err(|error| failed(error.into()))?;
    if !beneath::is_regular(&stat) {
        return Ok(false);
    }
    let left = limits.max_unpacked_bytes.saturating_sub(*bytes);
    let allowed = left.min(limits.max_file_bytes);
    let mut reader = io::Read::take(std::fs::File::from(source), allowed.saturating_add(1));
    let mut writer = beneath::create_file(to, found.name).map_err(failed)?;
    let copied = io::copy(&mut reader, &mut writer).map_err(failed)?;
    if copied > allowed {
        return Err(if left < limits.max_file_bytes {
            SkillError::too_large(Oversize::UnpackedBytes, limits.max_unpacked_bytes)
        } else {
            SkillError::too_large(Oversize::FileBytes, limits.max_file_bytes)
        });
    }
    *bytes += copied;
    atomic::set_mode(writer.as_fd(), beneath::is_executable(&stat)).map_err(failed)?;
    Ok(true)
}

/// Checks a package before it is published: its entry file, and links and special files that boxes cannot use.
pub(crate) fn validate(
    dir: BorrowedFd<'_>,
    path: &Path,
    limits: &Limits,
) -> Result<Vec<SkillWarning>, SkillError> {
    let (entry, unusable) =
        discovery::find_entry(dir).map_err(|error| SkillError::io("read", path, error))?;
    let Some(entry) = entry else {
        return Err(SkillError::NoEntryFile {
            path: path.to_owned(),
        });
    };
    let mut warnings = loading::load(dir, entry, path, limits)?.skill.warnings;
    warnings.extend(unusable.map(rules::not_taken));
    beneath::walk(dir, "read", limits, |found| {
        let depth = found.path.components().count() - 1;
        let is_usable = match FileType::from_raw_mode(found.stat.st_mode) {
            FileType::RegularFile | FileType::Directory => true,
            FileType::Symlink => rustix::fs::readlinkat(found.dir, found.name, Vec::new())
                .is_ok_and(|target| stays_inside(target.to_bytes(), depth)),
            _ => false,
        };
        if !is_usable {
            warnings.push(rules::not_taken(&found.path.to_string_lossy()));
        }
        Ok(true)
    })?;
    Ok(warnings)
}

/// Returns true if a link in a directory at `depth` stays inside the package. `..` is allowed only at the beginning of
/// the target, where it is relative to a real directory and not to another link.
fn stays_inside(target: &[u8], depth: usize) -> bool {
    if target.is_empty() || target.starts_with(b"/") {
        return false;
    }
    let mut up = 0;
    let mut went_down = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if went_down => return false,
            b".." => up += 1,
            _ => went_down = true,
        }
    }
    up <= depth
}
