//! How much is in a directory.
//!
//! Comes in: a directory that belongs to strangers. Goes out: bytes and files. Never here: following
//! a link, holding the event loop, or walking for ever.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, open, openat, statat};
use rustix::io::Errno;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) exists: bool,
    pub(crate) size_bytes: u64,
    pub(crate) file_count: u64,
    /// What could not be looked at, or was left out because there is too much of it.
    pub(crate) error_count: u64,
}

/// What one look at a directory may cost.
const MAX_ENTRIES: u64 = 2_000_000;
const MAX_TIME: Duration = Duration::from_secs(20);
/// Every level of an open walk is an open directory.
const MAX_DEPTH: usize = 256;

const LOOK: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Blocks: call it away from the event loop.
pub(crate) fn measure(path: &Path) -> Usage {
    let mut usage = Usage::default();
    match statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT | Errno::NOTDIR) => return usage,
        Err(_) => {
            usage.error_count = 1;
            return usage;
        }
        Ok(stat) => {
            usage.exists = true;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                usage.count(&stat);
                return usage;
            }
        }
    }
    match open(path, LOOK, Mode::empty()) {
        Ok(root) => usage.walk(root, MAX_ENTRIES, Instant::now() + MAX_TIME),
        Err(_) => usage.error_count += 1,
    }
    usage
}

impl Usage {
    fn count(&mut self, stat: &Stat) {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.size_bytes = self.size_bytes.saturating_add(size);
        self.file_count += 1;
    }

    /// Directories are opened one from the other, so that nobody can put a link in the way.
    fn walk(&mut self, root: OwnedFd, max_entries: u64, until: Instant) {
        let mut left = max_entries;
        let mut to_do: Vec<(Rc<OwnedFd>, CString, usize)> = Vec::new();
        self.list(&Rc::new(root), 0, &mut to_do, &mut left);
        while let Some((parent, name, depth)) = to_do.pop() {
            if left == 0 || Instant::now() > until || depth >= MAX_DEPTH {
                self.error_count += 1;
                continue;
            }
            match openat(&*parent, &name, LOOK, Mode::empty()) {
                Ok(directory) => self.list(&Rc::new(directory), depth, &mut to_do, &mut left),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => self.error_count += 1,
            }
        }
    }

    fn list(
        &mut self,
        directory: &Rc<OwnedFd>,
        depth: usize,
        to_do: &mut Vec<(Rc<OwnedFd>, CString, usize)>,
        left: &mut u64,
    ) {
        let Ok(entries) = Dir::read_from(directory) else {
            self.error_count += 1;
            return;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.error_count += 1;
                return;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if *left == 0 {
                self.error_count += 1;
                return;
            }
            *left -= 1;
            match statat(&**directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    to_do.push((Rc::clone(directory), name.to_owned(), depth + 1));
                }
                Ok(stat) => self.count(&stat),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => self.error_count += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("directories");
        std::fs::write(dir.path().join("one"), [0; 10]).expect("file");
        std::fs::write(dir.path().join("a/b/two"), [0; 100]).expect("file");
        std::os::unix::fs::symlink("/usr", dir.path().join("a/up")).expect("link");
        let usage = measure(dir.path());
        assert_eq!(
            usage,
            Usage {
                exists: true,
                size_bytes: 10 + 100 + 4,
                file_count: 3,
                error_count: 0,
            }
        );
        assert_eq!(measure(&dir.path().join("missing")), Usage::default());
        let link = measure(&dir.path().join("a/up"));
        assert_eq!((link.size_bytes, link.file_count), (4, 1));
    }

    #[test]
    fn a_walk_ends_however_much_there_is() {
        let dir = tempfile::tempdir().expect("directory");
        for name in 0..50 {
            std::fs::write(dir.path().join(name.to_string()), "x").expect("file");
        }
        let mut deep = dir.path().join("d");
        for _ in 0..MAX_DEPTH + 20 {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).expect("deep");
        let mut usage = Usage::default();
        let root = || open(dir.path(), LOOK, Mode::empty()).expect("open");
        usage.walk(root(), 20, Instant::now() + MAX_TIME);
        assert!(usage.file_count <= 20 && usage.error_count > 0, "{usage:?}");
        let whole = measure(dir.path());
        assert_eq!((whole.file_count, whole.error_count), (50, 1));
    }
}
