//! Digests what a package is built from, for the cache key. Links are not followed.

use std::fs;
use std::io::{self, BufRead as _, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::hosting::launch::LaunchError;
use crate::hosting::launch::read_text::open_regular;
use crate::hosting::launch::recipe::key::Key;

const MAX_FILES: usize = 200_000;
const MAX_BYTES: u64 = 2 * 1024 * 1024 * 1024;
const MAX_DEPTH: usize = 128;

/// Files and directories that are never part of a build.
const IGNORED_NAMES: [&str; 10] = [
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

/// Adds the files and directories at `paths`.
pub(crate) fn add(key: &mut Key, paths: &[PathBuf]) -> Result<(), LaunchError> {
    let mut digester = Digester {
        key,
        files: 0,
        bytes: 0,
    };
    for path in paths {
        digester.add(path, 0)?;
    }
    Ok(())
}

struct Digester<'a> {
    key: &'a mut Key,
    files: usize,
    bytes: u64,
}

impl Digester<'_> {
    fn add(&mut self, path: &Path, depth: usize) -> Result<(), LaunchError> {
        let failed = |source| LaunchError::Inspect {
            path: path.to_owned(),
            source,
        };
        let too_much = |limit| LaunchError::TooMuch {
            path: path.to_owned(),
            limit,
        };
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(too_much("200,000 files"));
        }
        if depth > MAX_DEPTH {
            return Err(too_much("128 nested directories"));
        }
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        self.key.add_bytes("path", path.as_os_str().as_bytes());
        let mode = metadata.permissions().mode();
        self.key.add("mode", &mode.to_string());
        if metadata.is_dir() {
            for inner in entries(path).map_err(failed)? {
                self.add(&inner, depth + 1)?;
            }
        } else if metadata.is_symlink() {
            let target = fs::read_link(path).map_err(failed)?;
            self.key.add_bytes("link", target.as_os_str().as_bytes());
        } else if let Some(file) = open_regular(path).map_err(failed)? {
            let mut file = io::BufReader::new(file.take(MAX_BYTES - self.bytes));
            let mut digest = Sha256::new();
            loop {
                let chunk = file.fill_buf().map_err(failed)?;
                if chunk.is_empty() {
                    break;
                }
                digest.update(chunk);
                let read = chunk.len();
                self.bytes += read as u64;
                file.consume(read);
            }
            if self.bytes == MAX_BYTES {
                return Err(too_much("2 GiB"));
            }
            self.key.add_bytes("bytes", &digest.finalize());
        }
        Ok(())
    }
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_included = |name: &str| !IGNORED_NAMES.contains(&name);
        if entry.file_name().to_str().is_none_or(is_included) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn digest(path: &Path) -> Result<String, LaunchError> {
        let mut key = Key::new("test");
        add(&mut key, &[path.to_owned()])?;
        Ok(key.finish())
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        // Size and modification time stay equal.
        let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::write(&path, text).expect("writable");
        let file = fs::File::options().write(true).open(&path);
        let file = file.expect("writable");
        file.set_times(times).expect("writable");
    }

    #[test]
    fn a_rewritten_file_changes_the_digest() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("dist/foo.whl");
        write(root.path(), "dist/foo.whl", "one");
        let first = digest(&file).expect("it can be read");
        write(root.path(), "dist/other", "x");
        assert_eq!(digest(&file).expect("it can be read"), first);
        write(root.path(), "dist/foo.whl", "two");
        assert_ne!(digest(&file).expect("it can be read"), first);
        digest(&root.path().join("missing")).expect_err("there is none");
    }

    #[test]
    fn a_directory_digest_covers_all_entries() {
        let root = tempfile::tempdir().expect("a directory");
        let all = || digest(root.path()).expect("it can be read");
        write(root.path(), "src/a.py", "one");
        let first = all();
        write(root.path(), ".git/HEAD", "x");
        write(root.path(), "src/__pycache__/a.pyc", "x");
        assert_eq!(all(), first);
        write(root.path(), "src/a.py", "two");
        let second = all();
        assert_ne!(second, first);
        write(root.path(), "src/b.py", "");
        let third = all();
        assert_ne!(third, second);
        symlink("a.py", root.path().join("src/c.py")).expect("a new link");
        assert_ne!(all(), third);
    }

    #[test]
    fn links_are_not_followed() {
        let root = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        symlink(outside.path(), root.path().join("out")).expect("a new link");
        let before = digest(root.path()).expect("it can be read");
        write(outside.path(), "new", "x");
        assert_eq!(digest(root.path()).expect("it can be read"), before);
    }
}
