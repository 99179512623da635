//! Every byte of what is installed from a workspace.
//!
//! Comes in: a workspace that was judged, and places in it. Goes out: a digest of what lies there, which
//! nobody can forge by a name, a size or a time. Never here: a way out of the workspace.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use sha2::{Digest as _, Sha256};

use super::LaunchError;
use super::key::Key;
use super::stage::{DEEPEST, MOST_BYTES, MOST_FILES, OPEN_DIRECTORY};

/// Never part of what is built.
pub(super) const PASSED_OVER: [&str; 10] = [
    ".git",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "node_modules",
    ".tox",
    ".nox",
    ".venv",
    "venv",
];
/// Should it have become a pipe by now, nobody waits for its other end.
const OPEN_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Adds what lies at `places` in `workspace`: a file, or a directory with everything in it.
pub(super) fn add(
    key: &mut Key,
    workspace: Option<&Path>,
    places: &[PathBuf],
) -> Result<(), LaunchError> {
    let mut limits = Limits {
        files: MOST_FILES,
        bytes: MOST_BYTES,
    };
    for place in places {
        let nothing = || failed("look into", place)(io::ErrorKind::NotFound.into());
        let workspace = workspace.ok_or_else(nothing)?;
        add_one(key, workspace, place, &mut limits)?;
    }
    Ok(())
}

struct Limits {
    files: usize,
    bytes: u64,
}

fn add_one(
    key: &mut Key,
    workspace: &Path,
    place: &Path,
    limits: &mut Limits,
) -> Result<(), LaunchError> {
    let mut seen = Seen {
        key,
        limits,
        at: workspace.join(place),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(workspace, flags, Mode::empty())
        .map_err(|error| seen.failed("look into", error))?;
    let inside = if place.as_os_str().is_empty() {
        Path::new(".")
    } else {
        place
    };
    // A link may lead on in the workspace; what lies outside of it is not what the box will see.
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(&root, inside, OPEN_FILE, Mode::empty(), within)
        .map_err(|error| seen.failed("look into", error))?;
    let stat = rustix::fs::fstat(&found).map_err(|error| seen.failed("look at", error))?;
    seen.key.add("at", &inside.to_string_lossy());
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => seen.directory(found.as_fd(), 0),
        FileType::RegularFile => seen.file(found, &stat),
        _ => Err(seen.failed("read", io::Error::from(io::ErrorKind::InvalidInput))),
    }
}

struct Seen<'a> {
    key: &'a mut Key,
    limits: &'a mut Limits,
    /// For errors.
    at: PathBuf,
}

impl Seen<'_> {
    fn directory(&mut self, directory: BorrowedFd<'_>, depth: usize) -> Result<(), LaunchError> {
        if depth > DEEPEST {
            return Err(self.too_much("128 directories in each other"));
        }
        let mut names = self.names(directory)?;
        names.sort();
        for name in names {
            let text = name.to_string_lossy().into_owned();
            if PASSED_OVER.contains(&text.as_str()) {
                continue;
            }
            self.at.push(&text);
            self.entry(directory, &name, depth)?;
            self.at.pop();
        }
        // Or what follows could stand in this directory as well.
        self.key.add("end", "");
        Ok(())
    }

    fn names(&mut self, directory: BorrowedFd<'_>) -> Result<Vec<CString>, LaunchError> {
        let entries = Dir::read_from(directory).map_err(|error| self.failed("read", error))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.failed("read", error))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.limits.files = self
                .limits
                .files
                .checked_sub(1)
                .ok_or_else(|| self.too_much("200,000 files"))?;
            names.push(name.to_owned());
        }
        Ok(names)
    }

    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> Result<(), LaunchError> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.failed("look at", error))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        self.key.add_bytes("name", name.to_bytes());
        match kind {
            FileType::Directory => {
                self.key.add("kind", "directory");
                let inner = rustix::fs::openat(directory, name, OPEN_DIRECTORY, Mode::empty())
                    .map_err(|error| self.failed("open", error))?;
                self.directory(inner.as_fd(), depth + 1)
            }
            FileType::RegularFile => {
                let flags = OPEN_FILE | OFlags::NOFOLLOW;
                let file = rustix::fs::openat(directory, name, flags, Mode::empty())
                    .map_err(|error| self.failed("open", error))?;
                self.file(file, &stat)
            }
            FileType::Symlink => {
                let says = rustix::fs::readlinkat(directory, name, Vec::new())
                    .map_err(|error| self.failed("read the link", error))?;
                self.key.add_bytes("link", says.to_bytes());
                Ok(())
            }
            // Sockets, pipes and devices: nothing is built from them.
            _ => {
                self.key.add("kind", "other");
                Ok(())
            }
        }
    }

    fn file(&mut self, file: OwnedFd, stat: &Stat) -> Result<(), LaunchError> {
        let mut file = File::from(file).take(self.limits.bytes.saturating_add(1));
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0_u64;
        loop {
            let read = file
                .read(&mut buffer)
                .map_err(|error| self.failed("read", error))?;
            let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
                break;
            };
            digest.update(chunk);
            bytes += chunk.len() as u64;
        }
        self.limits.bytes = self
            .limits
            .bytes
            .checked_sub(bytes)
            .ok_or_else(|| self.too_much("2 GiB"))?;
        self.key.add("rights", &(stat.st_mode & 0o777).to_string());
        self.key.add_bytes("bytes", &digest.finalize());
        Ok(())
    }

    fn failed(&self, operation: &'static str, error: impl Into<io::Error>) -> LaunchError {
        failed(operation, &self.at)(error.into())
    }

    fn too_much(&self, limit: &'static str) -> LaunchError {
        LaunchError::TooMuch {
            path: self.at.clone(),
            limit,
        }
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LaunchError {
    let path = path.to_owned();
    move |source| LaunchError::Copy {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn digest(workspace: &Path, place: &str) -> Result<String, LaunchError> {
        let mut key = Key::new("test");
        add(&mut key, Some(workspace), &[place.into()])?;
        Ok(key.finish())
    }

    fn write(workspace: &Path, name: &str, text: &str) {
        let path = workspace.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
        // The same size and the same time, whatever is in it.
        let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::write(&path, text).expect("it is ours");
        let file = File::options().write(true).open(&path).expect("it is ours");
        file.set_times(times).expect("it is ours");
    }

    #[test]
    fn what_is_in_a_file_decides_and_not_how_it_looks() {
        let workspace = tempfile::tempdir().expect("there is room");
        write(workspace.path(), "dist/foo.whl", "one");
        let first = digest(workspace.path(), "dist/foo.whl").expect("it can be read");
        write(workspace.path(), "dist/other", "x");
        let same = digest(workspace.path(), "dist/foo.whl").expect("it can be read");
        assert_eq!(same, first);
        write(workspace.path(), "dist/foo.whl", "two");
        let other = digest(workspace.path(), "dist/foo.whl").expect("it can be read");
        assert_ne!(other, first);
    }

    #[test]
    fn a_directory_is_everything_in_it() {
        let workspace = tempfile::tempdir().expect("there is room");
        let all = || digest(workspace.path(), "").expect("it can be read");
        write(workspace.path(), "src/a.py", "one");
        let first = all();
        write(workspace.path(), ".git/HEAD", "x");
        write(workspace.path(), "src/__pycache__/a.pyc", "x");
        assert_eq!(all(), first);
        write(workspace.path(), "src/a.py", "two");
        let second = all();
        assert_ne!(second, first);
        write(workspace.path(), "src/b.py", "");
        let third = all();
        assert_ne!(third, second);
        symlink("a.py", workspace.path().join("src/c.py")).expect("it is new");
        assert_ne!(all(), third);
    }

    #[test]
    fn where_a_directory_ends_makes_a_difference() {
        let (one, other) = (
            tempfile::tempdir().expect("there is room"),
            tempfile::tempdir().expect("there is room"),
        );
        write(one.path(), "a/b", "x");
        write(one.path(), "a/c", "x");
        write(other.path(), "a/b", "x");
        write(other.path(), "c", "x");
        let digest = |place: &tempfile::TempDir| digest(place.path(), "").expect("it can be read");
        assert_ne!(digest(&one), digest(&other));
    }

    #[test]
    fn no_link_leads_out_of_the_workspace() {
        let workspace = tempfile::tempdir().expect("there is room");
        symlink("/etc", workspace.path().join("out")).expect("it is new");
        symlink("../../../../etc/passwd", workspace.path().join("up")).expect("it is new");
        write(workspace.path(), "real.whl", "x");
        symlink("real.whl", workspace.path().join("latest.whl")).expect("it is new");
        for outside in ["out/passwd", "out", "up", "missing", "../x"] {
            digest(workspace.path(), outside).expect_err(outside);
        }
        digest(workspace.path(), "latest.whl").expect("it stays inside");
        let mut key = Key::new("test");
        add(&mut key, None, &["x".into()]).expect_err("there is no workspace");
    }
}
