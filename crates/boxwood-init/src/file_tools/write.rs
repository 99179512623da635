//! Writes a file atomically: a concurrent reader sees the old or the new content.
//!
//! The content is written to a temporary file that is renamed. If that is not possible (hard links, a mount on the
//! file, a read-only directory), it is written into the existing file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use super::types::{FileToolError, FileToolErrorKind, Written};
use super::{MAX_FILE_BYTES, open};

const MISSING: &str = "File not found";
/// The limit of the kernel.
const MAX_LINKS: usize = 40;
const MAX_NAMES: u32 = 100;

pub(super) fn write(path: &str, content: &[u8]) -> Result<Written, FileToolError> {
    if content.len() > MAX_FILE_BYTES {
        return Err(too_large("content", content.len() as u64));
    }
    let failed = FileToolError::of(path, MISSING);
    let target = target(Path::new(path)).map_err(&failed)?;
    let existing = match fs::symlink_metadata(&target) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if let Some(existing) = &existing {
        let kind = existing.file_type();
        if kind.is_dir() {
            return Err(FileToolError::is_a_directory(path));
        }
        if !kind.is_file() || kind.is_fifo() {
            return Err(FileToolError::not_a_file(path));
        }
    } else {
        if path.ends_with('/') {
            return Err(FileToolError::is_a_directory(path));
        }
        if let Some(parent) = target.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(&failed)?;
        }
    }
    replace(&target, existing.as_ref(), content).map_err(&failed)?;
    Ok(Written {
        size: content.len() as u64,
        created: existing.is_none(),
    })
}

pub(super) fn too_large(what: &str, size: u64) -> FileToolError {
    let text = format!(
        "{what} has {size} bytes; at most {MAX_FILE_BYTES} are handled in one call. Use a command, or \
         upload the file."
    );
    FileToolError::new(FileToolErrorKind::TooLarge, text)
}

/// Resolves symlinks, also if the last one is dangling.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(link) => {
                let parent = path.parent().unwrap_or(Path::new("/")).to_owned();
                path = parent.join(link);
            }
            // Not a symlink, or missing.
            Err(error) => {
                return match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::INVAL | Errno::NOENT) => Ok(path),
                    _ => Err(error),
                };
            }
        }
    }
    Err(Errno::LOOP.into())
}

/// `existing` is the metadata of the existing file.
pub(super) fn replace(
    target: &Path,
    existing: Option<&fs::Metadata>,
    content: &[u8],
) -> io::Result<()> {
    if existing.is_some() {
        // A rename needs no write permission on the file.
        rustix::fs::accessat(CWD, target, Access::WRITE_OK, AtFlags::EACCESS)?;
    }
    if existing.is_some_and(|existing| existing.nlink() > 1) {
        return write_into(target, content);
    }
    match exchange(target, existing, content) {
        Ok(()) => Ok(()),
        Err(error) if existing.is_some() => {
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::BUSY | Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::XDEV) => {
                    write_into(target, content)
                }
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

fn exchange(target: &Path, existing: Option<&fs::Metadata>, content: &[u8]) -> io::Result<()> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    let (mut file, name) = temporary_file(parent)?;
    let write_and_rename = || {
        file.write_all(content)?;
        if let Some(existing) = existing {
            file.set_permissions(Permissions::from_mode(existing.mode() & 0o7777))?;
        }
        drop(file);
        fs::rename(&name, target)
    };
    let outcome = write_and_rename();
    if outcome.is_err() {
        let _ = fs::remove_file(&name);
    }
    outcome
}

/// Creates a temporary file.
fn temporary_file(parent: &Path) -> io::Result<(File, PathBuf)> {
    let process = std::process::id();
    for number in 0..MAX_NAMES {
        let name = parent.join(format!(".boxwood-{process}-{number}.new"));
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&name);
        match created {
            Ok(file) => return Ok((file, name)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn write_into(target: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .custom_flags(open::OPEN_FLAGS.bits().cast_signed())
        .open(target)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestDir(tempfile::TempDir);

    impl TestDir {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a directory"))
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, content: &str) -> Result<Written, FileToolError> {
            write(self.path(name).to_str().expect("UTF-8"), content.as_bytes())
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).expect("read")
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<_> = fs::read_dir(self.0.path())
                .expect("list")
                .map(|entry| {
                    entry
                        .expect("entry")
                        .file_name()
                        .into_string()
                        .expect("UTF-8")
                })
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn parents_are_made_and_nothing_else_is_left() {
        let dir = TestDir::new();
        let written = dir.write("a/b/c.txt", "text").expect("write");
        assert!(written.created && written.size == 4);
        assert_eq!(dir.text("a/b/c.txt"), "text");
        let rewritten = dir.write("a/b/c.txt", "").expect("write");
        assert!(!rewritten.created);
        assert_eq!(dir.text("a/b/c.txt"), "");
        assert_eq!(dir.names(), ["a"]);
        assert_eq!(fs::read_dir(dir.path("a/b")).expect("list").count(), 1);
    }

    #[test]
    fn the_mode_stays_and_the_file_is_exchanged() {
        let dir = TestDir::new();
        dir.write("run.sh", "old").expect("write");
        fs::set_permissions(dir.path("run.sh"), Permissions::from_mode(0o755)).expect("chmod");
        let before = fs::metadata(dir.path("run.sh")).expect("stat");
        let mut reader = File::open(dir.path("run.sh")).expect("open");
        dir.write("run.sh", "new").expect("write");
        let after = fs::metadata(dir.path("run.sh")).expect("stat");
        assert_eq!(after.mode() & 0o7777, 0o755);
        assert_ne!(before.ino(), after.ino());
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).expect("read");
        assert_eq!(text, "old");
    }

    #[test]
    fn links_lead_to_what_is_written() {
        let dir = TestDir::new();
        fs::create_dir(dir.path("real")).expect("mkdir");
        std::os::unix::fs::symlink("real/there", dir.path("link")).expect("link");
        std::os::unix::fs::symlink("link", dir.path("second")).expect("link");
        assert!(dir.write("second", "one").expect("write").created);
        assert_eq!(dir.text("real/there"), "one");
        assert!(!dir.write("link", "two").expect("write").created);
        assert_eq!(dir.text("real/there"), "two");
        assert!(
            fs::symlink_metadata(dir.path("link"))
                .expect("stat")
                .is_symlink()
        );
        std::os::unix::fs::symlink("round", dir.path("round")).expect("link");
        let round = dir.write("round", "x").expect_err("a circle");
        assert_eq!(round.fault, FileToolErrorKind::TooManyLinks);
    }

    #[test]
    fn other_names_of_a_file_stay_names_of_it() {
        let dir = TestDir::new();
        dir.write("one", "long text").expect("write");
        fs::hard_link(dir.path("one"), dir.path("two")).expect("link");
        dir.write("one", "short").expect("write");
        assert_eq!(dir.text("two"), "short");
    }

    #[test]
    fn directories_and_devices_are_refused() {
        let dir = TestDir::new();
        fs::create_dir(dir.path("sub")).expect("mkdir");
        let error = dir.write("sub", "x").expect_err("a directory");
        assert_eq!(error.fault, FileToolErrorKind::IsADirectory);
        let error = dir.write("new/", "x").expect_err("a directory's name");
        assert_eq!(error.fault, FileToolErrorKind::IsADirectory);
        let error = write("/dev/null", b"x").expect_err("a device");
        assert_eq!(error.fault, FileToolErrorKind::NotAFile);
        dir.write("file", "x").expect("write");
        let error = dir.write("file/below", "x").expect_err("no directory");
        assert_eq!(error.fault, FileToolErrorKind::NotFound);
        assert_eq!(dir.text("file"), "x");
    }

    #[test]
    fn more_than_is_handled_in_one_call_is_refused() {
        let dir = TestDir::new();
        let error = write(
            dir.path("big").to_str().expect("UTF-8"),
            &vec![b'x'; MAX_FILE_BYTES + 1],
        );
        assert_eq!(
            error.expect_err("too large").fault,
            FileToolErrorKind::TooLarge
        );
        assert!(dir.names().is_empty());
    }
}
