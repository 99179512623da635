//! Taking a directory from somewhere else into the store.
//!
//! Comes in: an open source directory, which somebody may be changing. Goes out: a copy of its
//! files, directories and inner links, with the two modes packages have. Never here: links that
//! lead out, FIFOs, devices, sockets: those are left behind and named.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::beneath::{self, Links};
use crate::{Limits, Oversize, SkillError, Warning, atomic};

pub(crate) fn copy_tree(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    limits: &Limits,
) -> Result<Vec<Warning>, SkillError> {
    let mut copy = Copy {
        source,
        target,
        limits,
        bytes: 0,
        entries: 0,
        warnings: Vec::new(),
    };
    let mut queue = vec![PathBuf::new()];
    while let Some(path) = queue.pop() {
        copy.directory(&path, &mut queue)?;
    }
    Ok(copy.warnings)
}

struct Copy<'a> {
    source: BorrowedFd<'a>,
    target: BorrowedFd<'a>,
    limits: &'a Limits,
    bytes: u64,
    entries: usize,
    warnings: Vec<Warning>,
}

impl Copy<'_> {
    fn directory(&mut self, path: &Path, queue: &mut Vec<PathBuf>) -> Result<(), SkillError> {
        let failed = |error: io::Error| SkillError::io("copy", path, error);
        let from = beneath::open_dir(self.source, path, Links::Never).map_err(failed)?;
        let to = beneath::open_dir(self.target, path, Links::Never).map_err(failed)?;
        let left = self.limits.max_entries.saturating_sub(self.entries);
        let listed = beneath::names(from.as_fd(), left).map_err(failed)?;
        if !listed.complete {
            return Err(SkillError::too_large(
                Oversize::Entries,
                self.limits.max_entries,
            ));
        }
        self.entries += listed.names.len();
        for name in &listed.names {
            self.entry(&from, &to, path, name, queue)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        parent: &Path,
        name: &OsStr,
        queue: &mut Vec<PathBuf>,
    ) -> Result<(), SkillError> {
        let path = parent.join(name);
        let failed = |error: io::Error| SkillError::io("copy", &path, error);
        let shown = path.to_string_lossy().into_owned();
        crate::package_path::check_size(&shown, self.limits)?;
        let name = Path::new(name);
        let stat = beneath::stat_entry(from.as_fd(), name).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                atomic::make_dir(to.as_fd(), name).map_err(failed)?;
                queue.push(path);
            }
            FileType::RegularFile => {
                self.file(from.as_fd(), to.as_fd(), name, &path)?;
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new())
                    .map_err(|error| failed(error.into()))?;
                let depth = parent.components().count();
                if stays_inside(target.to_bytes(), depth) {
                    rustix::fs::symlinkat(target.as_c_str(), to, name)
                        .map_err(|error| failed(error.into()))?;
                } else {
                    self.warnings.push(Warning::NotTaken { path: shown });
                }
            }
            _ => self.warnings.push(Warning::NotTaken { path: shown }),
        }
        Ok(())
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &Path,
        path: &Path,
    ) -> Result<(), SkillError> {
        let failed = |error: io::Error| SkillError::io("copy", path, error);
        let source = beneath::open_file(from, name, Links::Never).map_err(failed)?;
        let stat = rustix::fs::fstat(&source).map_err(|error| failed(error.into()))?;
        if !beneath::is_regular(&stat) {
            self.warnings.push(Warning::NotTaken {
                path: path.to_string_lossy().into_owned(),
            });
            return Ok(());
        }
        let left = self.limits.max_unpacked_bytes.saturating_sub(self.bytes);
        let allowed = left.min(self.limits.max_file_bytes);
        let too_large = || {
            if left < self.limits.max_file_bytes {
                SkillError::too_large(Oversize::UnpackedBytes, self.limits.max_unpacked_bytes)
            } else {
                SkillError::too_large(Oversize::FileBytes, self.limits.max_file_bytes)
            }
        };
        if beneath::size(&stat) > allowed {
            return Err(too_large());
        }
        let mut reader = io::Read::take(std::fs::File::from(source), allowed.saturating_add(1));
        let mut writer = beneath::create_file(to, name).map_err(failed)?;
        let copied = io::copy(&mut reader, &mut writer).map_err(failed)?;
        if copied > allowed {
            return Err(too_large());
        }
        self.bytes += copied;
        atomic::set_mode(writer.as_fd(), beneath::is_executable(&stat)).map_err(failed)
    }
}

/// Whether a link in a directory `depth` levels down stays in the package whatever other inner
/// links it passes: steps up only at its beginning, where they count from a real directory.
pub(crate) fn stays_inside(target: &[u8], depth: usize) -> bool {
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
