//! Packs a local directory into a zip archive in memory, because the daemon may run on another machine.
//!
//! The archive is not validated here. The store validates every archive in the same way.

use std::fs::{self, File, Metadata};
use std::io::{self, Cursor, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::copy::{Progress, entries};
use crate::failure::{Failure, Outcome};
use crate::flags::size_text;

/// Catches a home directory that was given by mistake.
const MAX_BYTES: u64 = 1 << 30;

/// How deep the store looks for skills below a directory.
const SEARCH_DEPTH: usize = 2;

const ENTRY_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

/// Packs a directory. Symbolic links and special files are left out, with a line on stderr.
pub(super) fn pack(directory: &Path, name: &str, progress: &Progress) -> Outcome<Vec<u8>> {
    if !has_skill(directory, SEARCH_DEPTH) {
        return Err(
            Failure::usage(format!("there is no SKILL.md in `{}`", directory.display()))
                .hint("a skill is a directory with a SKILL.md in it"),
        );
    }
    let mut packing = Packing {
        zip: ZipWriter::new(Cursor::new(Vec::new())),
        bytes: 0,
        progress,
    };
    packing.tree(directory.to_owned(), name.to_owned())?;
    let packed = packing.zip.finish().map_err(unpackable)?;
    Ok(packed.into_inner())
}

/// Checked before packing, in case the wrong directory was named.
fn has_skill(directory: &Path, depth: usize) -> bool {
    if ENTRY_FILES
        .iter()
        .any(|name| directory.join(name).is_file())
    {
        return true;
    }
    let Some(deeper) = depth.checked_sub(1) else {
        return false;
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return false;
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .any(|entry| has_skill(&entry.path(), deeper))
}

struct Packing<'a> {
    zip: ZipWriter<Cursor<Vec<u8>>>,
    bytes: u64,
    progress: &'a Progress,
}

impl Packing<'_> {
    fn tree(&mut self, from: PathBuf, to: String) -> Outcome<()> {
        let mut pending = vec![(from, to)];
        while let Some((from, to)) = pending.pop() {
            let options = SimpleFileOptions::default().unix_permissions(0o755);
            self.zip
                .add_directory(format!("{to}/"), options)
                .map_err(unpackable)?;
            for (name, path, metadata) in entries(&from, self.progress)? {
                let to = format!("{to}/{name}");
                if metadata.is_file() {
                    self.file(&path, to, &metadata)?;
                } else if name != ".git" {
                    // The history is not part of the skill, and often larger.
                    pending.push((path, to));
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: String, metadata: &Metadata) -> Outcome<()> {
        let is_executable = metadata.permissions().mode() & 0o111 != 0;
        let mode = if is_executable { 0o755 } else { 0o644 };
        let options = SimpleFileOptions::default().unix_permissions(mode);
        self.zip.start_file(to, options).map_err(unpackable)?;
        let mut file = File::open(from).map_err(|error| Failure::unreadable(from, error))?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = file
                .read(&mut buffer)
                .map_err(|error| Failure::unreadable(from, error))?;
            if count == 0 {
                break;
            }
            self.bytes += count as u64;
            if self.bytes > MAX_BYTES {
                return Err(Failure::usage(format!(
                    "the directory contains more than {}",
                    size_text(MAX_BYTES)
                ))
                .hint("a skill holds instructions and scripts; mount large data with `-v`"));
            }
            self.zip
                .write_all(&buffer[..count])
                .map_err(|error| Failure::local("cannot create the archive", error))?;
            self.progress.add_bytes(count);
        }
        self.progress.file_done();
        Ok(())
    }
}

fn unpackable(error: zip::result::ZipError) -> Failure {
    Failure::local("cannot create the archive", io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_files_and_nothing_that_leads_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let skill = dir.path().join("pdf");
        fs::create_dir_all(skill.join("scripts")).unwrap();
        fs::create_dir_all(skill.join(".git")).unwrap();
        fs::write(skill.join("SKILL.md"), "x").unwrap();
        fs::write(skill.join("scripts/run.py"), "y").unwrap();
        fs::write(skill.join(".git/config"), "secret").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", skill.join("link")).unwrap();
        let packed = pack(&skill, "pdf", &Progress::new()).unwrap();
        let mut archive = zip::ZipArchive::new(Cursor::new(packed)).unwrap();
        let mut names: Vec<String> = (0..archive.len())
            .map(|index| {
                archive
                    .by_index(index)
                    .unwrap()
                    .name()
                    .unwrap()
                    .into_owned()
            })
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["pdf/", "pdf/SKILL.md", "pdf/scripts/", "pdf/scripts/run.py"]
        );
    }

    #[test]
    fn a_directory_without_a_skill_is_not_packed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        fs::write(dir.path().join("a/b/c/SKILL.md"), "too deep").unwrap();
        assert!(pack(dir.path(), "x", &Progress::new()).is_err());
        fs::write(dir.path().join("a/b/SKILL.md"), "found").unwrap();
        assert!(pack(dir.path(), "x", &Progress::new()).is_ok());
    }
}
