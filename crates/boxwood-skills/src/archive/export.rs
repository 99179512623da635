//! Exports a skill as a zip archive.

use std::io::{self, Cursor, Write as _};
use std::os::fd::AsFd;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::beneath::{self, Links, atomic, staging};
use crate::store::SkillStore;
use crate::{Oversize, SkillError, loading, naming};

impl SkillStore {
    /// All files are below one directory named after the skill. A link to a file inside the package becomes that file;
    /// other links, special files and names that are not UTF-8 are omitted. The same package always gives the same
    /// bytes.
    pub fn export_zip(&self, name: &str) -> Result<Vec<u8>, SkillError> {
        let package = self.package(name)?;
        let root = package.dir.as_fd();
        let top = naming::checked_name(&package.skill.name).map_or_else(
            |_| loading::directory_name(&package.skill.package_root),
            str::to_owned,
        );
        let limit = self.limits().max_unpacked_bytes;
        let mut left = limit;
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        beneath::walk(root, "pack", self.limits(), |found| {
            let name = found.name.as_os_str().as_encoded_bytes();
            if name.starts_with(atomic::PREFIX.as_bytes()) || staging::is_staging_name(name) {
                return Ok(false);
            }
            let Some(path) = found.path.to_str() else {
                return Ok(true);
            };
            let member = format!("{top}/{path}");
            let failed = |error: io::Error| SkillError::io("pack", path, error);
            if beneath::is_directory(&found.stat) {
                zip.add_directory(member, options(0o755))
                    .map_err(|error| failed(error.into()))?;
                return Ok(true);
            }
            if !beneath::is_regular(&found.stat) && !beneath::is_link(&found.stat) {
                return Ok(true);
            }
            let Ok(file) = beneath::open_file(root, &found.path, Links::Inside) else {
                return Ok(true);
            };
            let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
            if !beneath::is_regular(&stat) {
                return Ok(true);
            }
            let content = beneath::read_bounded(&file, left)
                .map_err(failed)?
                .ok_or_else(|| SkillError::too_large(Oversize::UnpackedBytes, limit))?;
            left -= content.len() as u64;
            let is_executable = beneath::is_executable(&stat);
            let mode = if is_executable { 0o755 } else { 0o644 };
            zip.start_file(member, options(mode))
                .map_err(|error| failed(error.into()))?;
            zip.write_all(&content).map_err(failed)?;
            Ok(true)
        })?;
        let done = zip
            .finish()
            .map_err(|error| SkillError::io("pack", name, error))?;
        Ok(done.into_inner())
    }
}

fn options(mode: u32) -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
        .unix_permissions(mode)
}
