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
    let there = match fs::symlink_metadata(&target) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if let Some(there) = &there {
        let kind = there.file_type();
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
    replace(&target, there.as_ref(), content).map_err(&failed)?;
    Ok(Written {
        size: content.len() as u64,
        created: there.is_none(),
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
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&at) {
            Ok(link) => {
                let parent = at.parent().unwrap_or(Path::new("/")).to_owned();
                at = parent.join(link);
            }
            // Not a symlink, or missing.
            Err(error) => {
                return match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::INVAL | Errno::NOENT) => Ok(at),
                    _ => Err(error),
                };
            }
        }
    }
    Err(Errno::LOOP.into())
}

/// `there` is the metadata of the existing file.
pub(super) fn replace(
    target: &Path,
    there: Option<&fs::Metadata>,
    content: &[u8],
) -> io::Result<()> {
    if there.is_some() {
        // A rename needs no write permission on the file.
        rustix::fs::accessat(CWD, target, Access::WRITE_OK, AtFlags::EACCESS)?;
    }
    if there.is_some_and(|there| there.nlink() > 1) {
        return write_into(target, content);
    }
    match exchange(target, there, content) {
        Ok(()) => Ok(()),
        Err(error) if there.is_some() => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY | Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::XDEV) => {
                write_into(target, content)
            }
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

fn exchange(target: &Path, there: Option<&fs::Metadata>, content: &[u8]) -> io::Result<()> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    let (mut file, name) = temporary_file(parent)?;
    let put = || {
        file.write_all(content)?;
        if let Some(there) = there {
            file.set_permissions(Permissions::from_mode(there.mode() & 0o7777))?;
        }
        drop(file);
        fs::rename(&name, target)
    };
    let put = put();
    if put.is_err() {
        let _ = fs::remove_file(&name);
    }
    put
}

/// Creates a temporary file.
fn temporary_file(parent: &Path) -> io::Result<(File, PathBuf)> {
    let process = std::process::id();
    for number in 0..MAX_NAMES {
        let name = parent.join(format!(".boxwood-{process}-{number}.new"));
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&name);
        match made {
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

    struct Place(tempfile::TempDir);

    impl Place {
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
        let place = Place::new();
        let written = place.write("a/b/c.txt", "text").expect("write");
        assert!(written.created && written.size == 4);
        assert_eq!(place.text("a/b/c.txt"), "text");
        let again = place.write("a/b/c.txt", "").expect("write");
        assert!(!again.created);
        assert_eq!(place.text("a/b/c.txt"), "");
        assert_eq!(place.names(), ["a"]);
        assert_eq!(fs::read_dir(place.path("a/b")).expect("list").count(), 1);
    }

    #[test]
    fn the_mode_stays_and_the_file_is_exchanged() {
        let place = Place::new();
        place.write("run.sh", "old").expect("write");
        fs::set_permissions(place.path("run.sh"), Permissions::from_mode(0o755)).expect("chmod");
        let before = fs::metadata(place.path("run.sh")).expect("stat");
        let mut reader = File::open(place.path("run.sh")).expect("open");
        place.write("run.sh", "new").expect("write");
        let after = fs::metadata(place.path("run.sh")).expect("stat");
        assert_eq!(after.mode() & 0o7777, 0o755);
        assert_ne!(before.ino(), after.ino());
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).expect("read");
        assert_eq!(text, "old");
    }

    #[test]
    fn links_lead_to_what_is_written() {
        let place = Place::new();
        fs::create_dir(place.path("real")).expect("mkdir");
        std::os::unix::fs::symlink("real/there", place.path("link")).expect("link");
        std::os::unix::fs::symlink("link", place.path("second")).expect("link");
        assert!(place.write("second", "one").expect("write").created);
        assert_eq!(place.text("real/there"), "one");
        assert!(!place.write("link", "two").expect("write").created);
        assert_eq!(place.text("real/there"), "two");
        assert!(
            fs::symlink_metadata(place.path("link"))
                .expect("stat")
                .is_symlink()
        );
        std::os::unix::fs::symlink("round", place.path("round")).expect("link");
        let round = place.write("round", "x").expect_err("a circle");
        assert_eq!(round.fault, FileToolErrorKind::TooManyLinks);
    }

    #[test]
    fn other_names_of_a_file_stay_names_of_it() {
        let place = Place::new();
        place.write("one", "long text").expect("write");
        fs::hard_link(place.path("one"), place.path("two")).expect("link");
        place.write("one", "short").expect("write");
        assert_eq!(place.text("two"), "short");
    }

    #[test]
    fn directories_and_devices_are_refused() {
        let place = Place::new();
        fs::create_dir(place.path("sub")).expect("mkdir");
        let error = place.write("sub", "x").expect_err("a directory");
        assert_eq!(error.fault, FileToolErrorKind::IsADirectory);
        let error = place.write("new/", "x").expect_err("a directory's name");
        assert_eq!(error.fault, FileToolErrorKind::IsADirectory);
        let error = write("/dev/null", b"x").expect_err("a device");
        assert_eq!(error.fault, FileToolErrorKind::NotAFile);
        place.write("file", "x").expect("write");
        let error = place.write("file/below", "x").expect_err("no directory");
        assert_eq!(error.fault, FileToolErrorKind::NotFound);
        assert_eq!(place.text("file"), "x");
    }

    #[test]
    fn more_than_is_handled_in_one_call_is_refused() {
        let place = Place::new();
        let error = write(
            place.path("big").to_str().expect("UTF-8"),
            &vec![b'x'; MAX_FILE_BYTES + 1],
        );
        assert_eq!(
            error.expect_err("too large").fault,
            FileToolErrorKind::TooLarge
        );
        assert!(place.names().is_empty());
    }
}
