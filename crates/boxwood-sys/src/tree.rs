//! Removes and measures directory trees with untrusted contents.
//!
//! Every step opens an entry relative to the directory that is already open and follows no symbolic link, so a
//! concurrent rename or replacement cannot redirect the walk out of the tree. Neither the stack nor the number of
//! open descriptors depends on the depth of the tree, unlike `std::fs::remove_dir_all`.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Parent directories that [`remove`] keeps open at once.
const MAX_OPEN_PARENTS: usize = 64;
/// Entries after which [`usage`] stops, and [`measure`] reports more than its limit.
const MAX_ENTRIES: u64 = 2_000_000;
/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// Directories that [`measure`] keeps open at once: one per level with more than one subdirectory left.
const MAX_OPEN_LEVELS: usize = 256;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes `path` and everything below it. A missing path is not an error. Directories without write or search
/// permission for their owner are made accessible first.
pub fn remove(path: &Path) -> io::Result<()> {
    match open(CWD, path) {
        Ok(directory) => remove_contents(directory, None)?,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) if path.is_symlink() => return fs::remove_file(path),
        Err(error) => return Err(error.into()),
    }
    match fs::remove_dir(path) {
        // Another process removed it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A directory whose files are already removed.
struct Level {
    /// Name in the parent directory.
    name: CString,
    /// Device and inode, to recognize the directory when it is reopened.
    id: (u64, u64),
    /// Subdirectories that are still to be removed.
    subdirectories: Vec<CString>,
}

/// Removes everything in a directory. Returns `TimedOut` after the deadline, which matters if a program can add files
/// meanwhile.
pub fn remove_contents(root: OwnedFd, deadline: Option<Instant>) -> io::Result<()> {
    let mut level = Level::enter(&root, CString::default(), deadline)?;
    let mut directory = root;
    let mut parents: Vec<Level> = Vec::new();
    // Descriptors of the nearest parents. Older ones are closed and reopened through `..`.
    let mut open_parents: VecDeque<OwnedFd> = VecDeque::new();
    loop {
        if let Some(name) = level.subdirectories.pop() {
            let Some(inner) = open_subdirectory(&directory, &name)? else {
                continue;
            };
            parents.push(std::mem::replace(
                &mut level,
                Level::enter(&inner, name, deadline)?,
            ));
            open_parents.push_back(std::mem::replace(&mut directory, inner));
            if open_parents.len() > MAX_OPEN_PARENTS {
                open_parents.pop_front();
            }
            continue;
        }
        let Some(parent) = parents.pop() else {
            return Ok(());
        };
        directory = match open_parents.pop_back() {
            Some(open) => open,
            None => reopen_parent(&parent, &directory)?,
        };
        ignore_missing(rustix::fs::unlinkat(
            &directory,
            &level.name,
            AtFlags::REMOVEDIR,
        ))?;
        level = parent;
    }
}

impl Level {
    /// Removes the files of a directory and lists its subdirectories.
    fn enter(directory: &OwnedFd, name: CString, deadline: Option<Instant>) -> io::Result<Self> {
        let stat = rustix::fs::fstat(directory)?;
        if !Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
            match rustix::fs::fchmod(directory, Mode::RWXU) {
                // Owned by another user. Removing its entries may fail below.
                Err(Errno::PERM) => {}
                opened => opened?,
            }
        }
        let mut subdirectories = Vec::new();
        for entry in Dir::read_from(directory)? {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(Errno::TIMEDOUT.into());
            }
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if entry.file_type() == FileType::Directory || !remove_file(directory, name)? {
                subdirectories.push(name.to_owned());
            }
        }
        Ok(Self {
            name,
            id: (stat.st_dev, stat.st_ino),
            subdirectories,
        })
    }
}

/// Returns `None` if the entry is no longer a directory.
fn open_subdirectory(directory: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    match open(directory, name) {
        Ok(inner) => Ok(Some(inner)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            remove_file(directory, name)?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn open(directory: impl AsFd, name: impl Arg + Copy) -> rustix::io::Result<OwnedFd> {
    let opened = rustix::fs::openat(&directory, name, OFlags::RDONLY | DIRECTORY, Mode::empty());
    if opened.as_ref().err() != Some(&Errno::ACCESS) {
        return opened;
    }
    // An unreadable directory can still be opened with `O_PATH`, and changed through the descriptor.
    let handle = rustix::fs::openat(directory, name, OFlags::PATH | DIRECTORY, Mode::empty())?;
    let proc_path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    rustix::fs::chmod(proc_path, Mode::RWXU)?;
    rustix::fs::openat(&handle, c".", OFlags::RDONLY | DIRECTORY, Mode::empty())
}

/// Reopens the parent of `from`. Fails if `from` was moved to another directory meanwhile.
fn reopen_parent(level: &Level, from: &OwnedFd) -> io::Result<OwnedFd> {
    let outer = rustix::fs::openat(from, c"..", OFlags::RDONLY | DIRECTORY, Mode::empty())?;
    let stat = rustix::fs::fstat(&outer)?;
    if (stat.st_dev, stat.st_ino) == level.id {
        return Ok(outer);
    }
    Err(io::Error::other(
        "a directory was moved while its tree was being removed",
    ))
}

/// Returns false if the entry is a directory.
fn remove_file(directory: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => Ok(false),
        removed => ignore_missing(removed).map(|()| true),
    }
}

fn ignore_missing(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Disk usage of a tree in bytes. Stops once it exceeds `limit`. A tree with more than two million entries counts as
/// larger than `limit`. Entries that disappear meanwhile are not counted.
pub fn measure(directory: &Path, limit: u64) -> io::Result<u64> {
    let usage = usage(directory, limit);
    match usage.first_error {
        Some(error) => Err(error),
        None if usage.entries > MAX_ENTRIES => Ok(usage.disk_bytes.max(limit.saturating_add(1))),
        None => Ok(usage.disk_bytes),
    }
}

/// The contents of a tree. Stops once the disk usage exceeds `limit`. A missing directory counts as empty.
pub fn usage(directory: &Path, limit: u64) -> Usage {
    let mut usage = Usage::default();
    let mut levels = Vec::new();
    match open_if_directory(CWD, directory) {
        Ok(top) => levels.extend(top.and_then(|top| usage.level(top, limit))),
        Err(error) => usage.fail(error),
    }
    while let Some(level) = levels.last_mut() {
        if usage.is_over(limit) {
            break;
        }
        let Some(name) = level.subdirectories.pop() else {
            levels.pop();
            continue;
        };
        let opened = open_if_directory(&level.directory, name.as_c_str());
        if level.subdirectories.is_empty() {
            // A chain of single directories needs one descriptor, however long it is.
            levels.pop();
        }
        match opened {
            Ok(None) => {}
            Ok(Some(_)) if levels.len() >= MAX_OPEN_LEVELS => {
                usage.fail(io::Error::other(format!(
                    "more than {MAX_OPEN_LEVELS} nested directories have several subdirectories"
                )));
            }
            Ok(Some(opened)) => levels.extend(usage.level(opened, limit)),
            Err(error) => usage.fail(error),
        }
    }
    usage
}

/// What [`usage`] counted.
#[derive(Debug, Default)]
pub struct Usage {
    /// Allocated blocks. Each hard link counts its share of the file.
    pub disk_bytes: u64,
    /// The sizes of everything except directories.
    pub file_bytes: u64,
    /// Everything except directories.
    pub files: u64,
    entries: u64,
    /// Directories that could not be measured.
    pub errors: u64,
    first_error: Option<io::Error>,
}

struct OpenLevel {
    directory: OwnedFd,
    /// Subdirectories that are still to be measured.
    subdirectories: Vec<CString>,
}

impl Usage {
    fn level(&mut self, directory: OwnedFd, limit: u64) -> Option<OpenLevel> {
        match self.list(&directory, limit) {
            Ok(subdirectories) => Some(OpenLevel {
                directory,
                subdirectories,
            }),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn list(&mut self, directory: &OwnedFd, limit: u64) -> io::Result<Vec<CString>> {
        let mut subdirectories = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = match entry {
                // The directory was removed.
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            self.add(&stat, is_directory);
            if self.is_over(limit) {
                break;
            }
            if is_directory {
                subdirectories.push(name.to_owned());
            }
        }
        Ok(subdirectories)
    }

    fn add(&mut self, stat: &Stat, is_directory: bool) {
        let allocated = u64::try_from(stat.st_blocks).unwrap_or(0);
        let allocated = allocated.saturating_mul(BLOCK_BYTES);
        #[allow(
            clippy::unnecessary_cast,
            reason = "the type of `st_nlink` depends on the architecture"
        )]
        let links = (stat.st_nlink as u64).max(1);
        self.disk_bytes = self.disk_bytes.saturating_add(allocated / links);
        self.entries += 1;
        if !is_directory {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            self.file_bytes = self.file_bytes.saturating_add(size);
            self.files += 1;
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    fn is_over(&self, limit: u64) -> bool {
        self.disk_bytes > limit || self.entries > MAX_ENTRIES
    }
}

/// Returns `None` if the entry is missing or not a directory.
fn open_if_directory(directory: impl AsFd, name: impl Arg) -> io::Result<Option<OwnedFd>> {
    match rustix::fs::openat(directory, name, OFlags::RDONLY | DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Duration;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    }

    fn mode(path: &Path) -> u32 {
        let metadata = fs::metadata(path).expect("there");
        metadata.permissions().mode() & 0o777
    }

    #[test]
    fn a_read_only_tree_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let inner = dir.path().join("a/b");
        fs::create_dir_all(&inner).expect("made");
        fs::write(inner.join("file"), "x").expect("written");
        for path in [&inner, &dir.path().join("a")] {
            chmod(path, 0o500);
        }
        remove(&dir.path().join("a")).expect("removed");
        remove(&dir.path().join("a")).expect("nothing to do");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[test]
    fn unreadable_directories_are_removed_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = dir.path().join("outside");
        let inner = dir.path().join("a/b/c");
        fs::create_dir_all(&inner).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("kept"), "x").expect("written");
        symlink(&outside, inner.join("link")).expect("linked");
        symlink(&outside, dir.path().join("link")).expect("linked");
        fs::write(inner.join("file"), "x").expect("written");
        chmod(&outside, 0o510);
        for path in ["a/b/c", "a/b", "a"] {
            chmod(&dir.path().join(path), 0);
        }
        // A link that replaced a directory after it was listed.
        assert!(open(CWD, &dir.path().join("link")).is_err());
        let directory = open(CWD, dir.path()).expect("opened");
        let swapped = open_subdirectory(&directory, c"link").expect("looked at");
        assert!(swapped.is_none() && !dir.path().join("link").is_symlink());
        remove(&dir.path().join("a")).expect("removed");
        assert!(!dir.path().join("a").exists());
        symlink(&outside, dir.path().join("a")).expect("linked");
        remove(&dir.path().join("a")).expect("the link alone is removed");
        assert!(!dir.path().join("a").is_symlink());
        assert_eq!(mode(&outside), 0o510);
        chmod(&outside, 0o700);
        assert!(outside.join("kept").exists());
    }

    /// Creates a chain of directories that is deeper than any path can name.
    fn dig(top: &Path, depth: usize, outside: &Path) {
        let mut directory = open(CWD, top).expect("opened");
        for level in 0..depth {
            // Entries that are processed only on the way back up.
            if level % 1000 == 7 {
                rustix::fs::mkdirat(&directory, c"side", Mode::RWXU).expect("made");
                rustix::fs::symlinkat(outside, &directory, c"link").expect("linked");
            }
            rustix::fs::mkdirat(&directory, c"d", Mode::RWXU).expect("made");
            let next = open(&directory, c"d").expect("opened");
            if level % 1000 == 8 {
                rustix::fs::fchmod(&directory, Mode::empty()).expect("closed");
            }
            directory = next;
        }
    }

    #[test]
    fn a_very_deep_tree_is_removed_with_little_stack_and_few_descriptors() {
        let dir = tempfile::tempdir().expect("a directory");
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir(&top).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("kept"), "x").expect("written");
        dig(&top, 20_000, &outside);
        let deep = top.clone();
        let small = std::thread::Builder::new().stack_size(256 * 1024);
        let removing = small.spawn(move || remove(&deep)).expect("begun");
        removing.join().expect("ended").expect("removed");
        assert!(!top.exists());
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn removal_stops_at_the_deadline() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("a/b")).expect("made");
        let top = || open(CWD, dir.path()).expect("opened");
        let past = Instant::now().checked_sub(Duration::from_millis(1));
        let error = remove_contents(top(), past).expect_err("too late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(dir.path().join("a").exists());
        let later = Instant::now() + Duration::from_mins(1);
        remove_contents(top(), Some(later)).expect("removed");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[test]
    fn a_directory_moved_during_removal_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["a/b", "other"] {
            fs::create_dir_all(dir.path().join(path)).expect("made");
        }
        let outer = open(CWD, &dir.path().join("a")).expect("opened");
        let level = Level::enter(&outer, CString::default(), None).expect("entered");
        let inner = open(&outer, c"b").expect("opened");
        reopen_parent(&level, &inner).expect("found again");
        fs::rename(dir.path().join("a/b"), dir.path().join("other/b")).expect("moved");
        assert!(reopen_parent(&level, &inner).is_err());
    }

    #[test]
    fn hard_links_count_once_and_measuring_stops_past_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("a")).expect("made");
        fs::write(dir.path().join("a/file"), vec![1; 1 << 20]).expect("written");
        symlink("/", dir.path().join("link")).expect("made");
        let alone = measure(dir.path(), u64::MAX).expect("measured");
        assert!((1 << 20..3 << 20).contains(&alone), "{alone}");
        fs::hard_link(dir.path().join("a/file"), dir.path().join("b")).expect("made");
        let linked = measure(dir.path(), u64::MAX).expect("measured");
        assert!(linked < 3 << 20, "{linked}");
        assert!(measure(dir.path(), 1000).expect("measured") > 1000);
        assert_eq!(measure(&dir.path().join("gone"), 1).expect("nothing"), 0);
    }

    #[test]
    fn a_link_that_replaced_a_directory_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let elsewhere = tempfile::tempdir().expect("a directory");
        fs::write(elsewhere.path().join("large"), vec![1; 1 << 20]).expect("written");
        symlink(elsewhere.path(), dir.path().join("link")).expect("made");
        let top = open_if_directory(CWD, dir.path())
            .expect("opened")
            .expect("there");
        let swapped = open_if_directory(&top, c"link").expect("looked at");
        assert!(swapped.is_none());
        let link = dir.path().join("link");
        assert_eq!(measure(&link, u64::MAX).expect("measured"), 0);
    }

    #[test]
    fn files_and_links_are_counted_with_their_sizes() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("a/b")).expect("made");
        fs::write(dir.path().join("one"), [0; 10]).expect("written");
        fs::write(dir.path().join("a/b/two"), [0; 100]).expect("written");
        symlink("/usr", dir.path().join("a/up")).expect("linked");
        let found = usage(dir.path(), u64::MAX);
        assert_eq!(
            (found.file_bytes, found.files, found.errors),
            (10 + 100 + 4, 3, 0)
        );
        assert_eq!(usage(&dir.path().join("gone"), u64::MAX).files, 0);
    }

    #[test]
    fn a_chain_deeper_than_any_path_is_measured_completely() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path().join("top");
        fs::create_dir(&top).expect("made");
        let mut directory = open_if_directory(CWD, &top)
            .expect("opened")
            .expect("there");
        for _ in 0..3000 {
            rustix::fs::mkdirat(&directory, c"d", Mode::RWXU).expect("made");
            directory = open_if_directory(&directory, c"d")
                .expect("opened")
                .expect("there");
        }
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = rustix::fs::openat(&directory, c"file", flags, Mode::RUSR).expect("made");
        rustix::io::write(&file, &vec![1; 1 << 20]).expect("written");
        let bytes = measure(&top, u64::MAX);
        remove(&top).expect("removed");
        assert!(bytes.expect("measured") >= 1 << 20);
    }
}
