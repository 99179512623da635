//! A skill as an archive that any store of skills can take.

use std::io::{Cursor, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::beneath::{self, Links};
use crate::store::{Package, SkillStore};
use crate::{Limits, Oversize, SkillError, atomic, loading, naming, staging};

impl SkillStore {
    /// Files and directories under one directory named after the skill. A link to a file inside
    /// the package becomes that file; other links and special files stay behind. The same
    /// package always makes the same bytes.
    pub fn export_zip(&self, name: &str) -> Result<Vec<u8>, SkillError> {
        let package = self.package(name)?;
        let mut export = Export {
            package: &package,
            limits: self.limits(),
            zip: ZipWriter::new(Cursor::new(Vec::new())),
            top: naming::checked_name(&package.skill.name).map_or_else(
                |_| loading::directory_name(&package.skill.package_root),
                str::to_owned,
            ),
            entries: 0,
            bytes: 0,
        };
        let mut queue = vec![PathBuf::new()];
        while let Some(path) = queue.pop() {
            export.directory(&path, &mut queue)?;
        }
        let done = export
            .zip
            .finish()
            .map_err(|error| SkillError::io("pack", name, error))?;
        Ok(done.into_inner())
    }
}

struct Export<'a> {
    package: &'a Package,
    limits: &'a Limits,
    zip: ZipWriter<Cursor<Vec<u8>>>,
    top: String,
    entries: usize,
    bytes: u64,
}

impl Export<'_> {
    fn directory(&mut self, path: &Path, queue: &mut Vec<PathBuf>) -> Result<(), SkillError> {
        let failed = |error| SkillError::io("pack", path, error);
        let root = self.package.dir.as_fd();
        let dir = match beneath::open_dir(root, path, Links::Never) {
            Ok(dir) => dir,
            // Gone, or no longer a directory, since its parent was read.
            Err(error) if beneath::is_missing(&error) || beneath::leads_out(&error) => {
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        let left = self.limits.max_entries.saturating_sub(self.entries);
        let mut listed = beneath::names(dir.as_fd(), left).map_err(failed)?;
        if !listed.complete {
            return Err(SkillError::too_large(
                Oversize::Entries,
                self.limits.max_entries,
            ));
        }
        self.entries += listed.names.len();
        listed.names.sort();
        for name in &listed.names {
            let bytes = name.as_encoded_bytes();
            if bytes.starts_with(atomic::PREFIX.as_bytes()) || staging::is_staging_name(bytes) {
                continue;
            }
            let inner = path.join(name);
            let Ok(stat) = beneath::stat_entry(dir.as_fd(), Path::new(name)) else {
                continue;
            };
            if beneath::is_directory(&stat) {
                self.add_directory(&inner)?;
                queue.push(inner);
            } else if beneath::is_regular(&stat) || beneath::is_link(&stat) {
                self.add_file(&inner)?;
            }
        }
        Ok(())
    }

    /// The path in the archive; names that are not text have none.
    fn member(&self, path: &Path) -> Option<String> {
        Some(format!("{}/{}", self.top, path.to_str()?))
    }

    fn add_directory(&mut self, path: &Path) -> Result<(), SkillError> {
        let Some(member) = self.member(path) else {
            return Ok(());
        };
        let options = options().unix_permissions(0o755);
        self.zip
            .add_directory(member, options)
            .map_err(|error| SkillError::io("pack", path, error))
    }

    fn add_file(&mut self, path: &Path) -> Result<(), SkillError> {
        let root = self.package.dir.as_fd();
        let (Some(member), Ok(file)) = (
            self.member(path),
            beneath::open_file(root, path, Links::Inside),
        ) else {
            return Ok(());
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| SkillError::io("pack", path, error))?;
        if !beneath::is_regular(&stat) {
            return Ok(());
        }
        let left = self.limits.max_unpacked_bytes.saturating_sub(self.bytes);
        let content = beneath::read_bounded(&file, left)
            .map_err(|error| SkillError::io("pack", path, error))?
            .ok_or_else(|| {
                SkillError::too_large(Oversize::UnpackedBytes, self.limits.max_unpacked_bytes)
            })?;
        self.bytes += content.len() as u64;
        let mode = if beneath::is_executable(&stat) {
            0o755
        } else {
            0o644
        };
        self.zip
            .start_file(member, options().unix_permissions(mode))
            .map_err(|error| SkillError::io("pack", path, error))?;
        self.zip
            .write_all(&content)
            .map_err(|error| SkillError::io("pack", path, error))
    }
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
}
