//! Exports a skill as a zip archive.

use std::io::{Cursor, Write};
use std::os::fd::AsFd;
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::beneath::{self, Links, atomic, staging};
use crate::store::{Package, SkillStore};
use crate::{Limits, Oversize, SkillError, loading, naming};

impl SkillStore {
    /// All files are below one directory named after the skill. A link to a file inside the package becomes that file;
    /// other links and special files are omitted. The same package always gives the same
    /// bytes.
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
            bytes: 0,
        };
        beneath::walk(package.dir.as_fd(), "pack", self.limits(), |found| {
            let name = found.name.as_os_str().as_encoded_bytes();
            if name.starts_with(atomic::PREFIX.as_bytes()) || staging::is_staging_name(name) {
                return Ok(false);
            }
            if beneath::is_directory(&found.stat) {
                export.add_directory(&found.path)?;
            } else if beneath::is_regular(&found.stat) || beneath::is_link(&found.stat) {
                export.add_file(&found.path)?;
            }
            Ok(true)
        })?;
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
    bytes: u64,
}

impl Export<'_> {
    /// The path in the archive. `None` for names that are not UTF-8.
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
