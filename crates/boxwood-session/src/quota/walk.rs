//! Adds up what a directory tree holds.
//!
//! Every step goes from one open directory to the next, without paths and without following
//! symlinks, so a program that moves directories during a walk cannot lead it out of the tree.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, Stat, StatxFlags, fstat, openat, statat, statx,
};
use rustix::io::Errno;

/// Directories that are open at once: one for every level with more than one subdirectory.
const MAX_DEPTH: usize = 512;
const MAX_ENTRIES: u64 = 20_000_000;
/// Memory for the names of directories that are still to be walked. Empty directories are free on some
/// file systems, so the quota does not limit their number.
const MAX_PENDING_BYTES: usize = 256 * 1024 * 1024;
/// Memory that a pending name takes in addition to its text.
const NAME_BYTES: usize = 48;
/// Files with several hard links that are remembered.
const MAX_LINKED: usize = 8_000_000;
const ENTRIES_PER_CANCEL_CHECK: u64 = 64;
/// Counted for every file in addition to its blocks, so that a million empty files count.
const INODE_BYTES: u64 = 256;
const BLOCK_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Lengths of all files and symlinks, once per hard link.
    lengths: u64,
    /// Allocated blocks, each file once.
    allocated: u64,
    pub(super) entries: u64,
    /// Allocated blocks of files that changed recently.
    pub(super) recent: u64,
}

impl Usage {
    pub(super) fn bytes(&self) -> u64 {
        let allocated = self.entries.saturating_mul(INODE_BYTES) + self.allocated;
        allocated.max(self.lengths)
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WalkError {
    #[error("more than {MAX_DEPTH} nested directories")]
    TooDeep,
    #[error("too many files")]
    TooMany,
    #[error("the daemon has no permission to read a directory in it")]
    PermissionDenied,
    #[error("cancelled")]
    Cancelled,
    #[error("failed to read it")]
    Io(#[from] io::Error),
}

/// `recent_since` is in seconds since the epoch and is compared with the change time, which programs
/// cannot set.
pub(super) fn walk(
    directory: BorrowedFd<'_>,
    recent_since: i64,
    cancelled: impl Fn() -> bool,
) -> Result<Usage, WalkError> {
    let root = open(directory, c".").map_err(io::Error::from)?;
    let mount = mount_of(&root)?;
    let mut walk = Walk {
        recent_since,
        usage: Usage::default(),
        linked: HashSet::new(),
        pending_bytes: 0,
        buffer: Vec::with_capacity(64 * 1024),
    };
    let mut levels = vec![walk.level(root, &cancelled)?];
    while let Some(level) = levels.last_mut() {
        if cancelled() {
            return Err(WalkError::Cancelled);
        }
        let Some(name) = level.subdirectories.pop() else {
            levels.pop();
            continue;
        };
        walk.pending_bytes -= cost(&name);
        let opened = open(level.directory.as_fd(), &name);
        if level.subdirectories.is_empty() {
            // A chain of single directories of any length takes one descriptor.
            levels.pop();
        }
        let opened = match opened {
            Ok(opened) => opened,
            // Removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(Errno::ACCESS) => return Err(WalkError::PermissionDenied),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        if mount_of(&opened)? != mount {
            continue;
        }
        if levels.len() >= MAX_DEPTH {
            return Err(WalkError::TooDeep);
        }
        levels.push(walk.level(opened, &cancelled)?);
    }
    Ok(walk.usage)
}

/// The mount id, or the device on kernels before 5.8. The device alone is not enough: a btrfs
/// subvolume has its own, and a box can create subvolumes.
fn mount_of(directory: &OwnedFd) -> Result<(bool, u64), WalkError> {
    let mask = StatxFlags::MNT_ID;
    let stat = statx(directory, c"", AtFlags::EMPTY_PATH, mask).map_err(io::Error::from)?;
    if stat.stx_mask & mask.bits() != 0 {
        return Ok((true, stat.stx_mnt_id));
    }
    Ok((false, fstat(directory).map_err(io::Error::from)?.st_dev))
}

fn open(at: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn cost(name: &CStr) -> usize {
    name.count_bytes() + NAME_BYTES
}

struct Level {
    directory: OwnedFd,
    subdirectories: Vec<CString>,
}

struct Walk {
    recent_since: i64,
    usage: Usage,
    /// Files with more than one name that were counted already.
    linked: HashSet<(u64, u64)>,
    /// Of the names in all levels together.
    pending_bytes: usize,
    buffer: Vec<u8>,
}

impl Walk {
    fn level(
        &mut self,
        directory: OwnedFd,
        cancelled: &impl Fn() -> bool,
    ) -> Result<Level, WalkError> {
        let mut subdirectories = Vec::new();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // The directory itself was removed.
                Err(Errno::NOENT) => break,
                Err(error) => return Err(io::Error::from(error).into()),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(Errno::ACCESS) => return Err(WalkError::PermissionDenied),
                Err(error) => return Err(io::Error::from(error).into()),
            };
            self.usage.entries += 1;
            if self.usage.entries > MAX_ENTRIES {
                return Err(WalkError::TooMany);
            }
            if self.usage.entries.is_multiple_of(ENTRIES_PER_CANCEL_CHECK) && cancelled() {
                return Err(WalkError::Cancelled);
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.pending_bytes += cost(name);
                subdirectories.push(name.to_owned());
            }
            self.count(&stat);
            if self.pending_bytes > MAX_PENDING_BYTES || self.linked.len() > MAX_LINKED {
                return Err(WalkError::TooMany);
            }
        }
        self.buffer = buffer;
        Ok(Level {
            directory,
            subdirectories,
        })
    }

    fn count(&mut self, stat: &Stat) {
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !is_directory {
            let length = u64::try_from(stat.st_size).unwrap_or(0);
            self.usage.lengths = self.usage.lengths.saturating_add(length);
            if stat.st_nlink > 1 && !self.linked.insert((stat.st_dev, stat.st_ino)) {
                return;
            }
        }
        let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES;
        self.usage.allocated += allocated;
        #[allow(
            clippy::unnecessary_cast,
            clippy::cast_possible_wrap,
            reason = "signed on some machines, unsigned on others, and far from the end of both"
        )]
        let changed = stat.st_ctime as i64;
        if changed >= self.recent_since {
            self.usage.recent += allocated;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn walked(path: &Path) -> Result<Usage, WalkError> {
        let directory = File::open(path).expect("a directory");
        walk(directory.as_fd(), i64::MAX, || false)
    }

    fn bytes(path: &Path) -> u64 {
        walked(path).expect("walked").bytes()
    }

    #[test]
    fn files_are_counted_and_symlinks_are_not_followed() {
        let tree = tempfile::tempdir().expect("a directory");
        let elsewhere = tempfile::tempdir().expect("a directory");
        fs::write(elsewhere.path().join("big"), vec![1; 4 << 20]).expect("written");
        fs::create_dir_all(tree.path().join("a/b/c")).expect("made");
        fs::write(tree.path().join("a/b/c/f"), vec![1; 1 << 20]).expect("written");
        symlink(elsewhere.path(), tree.path().join("out")).expect("linked");
        symlink(elsewhere.path().join("big"), tree.path().join("big")).expect("linked");
        let used = bytes(tree.path());
        assert!((MIB..2 * MIB).contains(&used), "{used}");
    }

    #[test]
    fn a_sparse_file_counts_as_long_as_it_is() {
        let tree = tempfile::tempdir().expect("a directory");
        let file = File::create(tree.path().join("f")).expect("a file");
        file.set_len(50 * MIB).expect("longer");
        assert_eq!(bytes(tree.path()), 50 * MIB);
    }

    #[test]
    fn space_that_is_reserved_counts() {
        let tree = tempfile::tempdir().expect("a directory");
        let file = File::create(tree.path().join("f")).expect("a file");
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, keep, 0, 8 * MIB).expect("reserved");
        assert!(bytes(tree.path()) >= 8 * MIB);
    }

    #[test]
    fn empty_files_count() {
        let tree = tempfile::tempdir().expect("a directory");
        for number in 0..1000 {
            File::create(tree.path().join(number.to_string())).expect("a file");
        }
        assert!(bytes(tree.path()) >= 1000 * INODE_BYTES);
    }

    #[test]
    fn hard_links_count_once() {
        let tree = tempfile::tempdir().expect("a directory");
        let path = tree.path().join("f");
        fs::write(&path, vec![1; 1 << 20]).expect("written");
        let before = walked(tree.path()).expect("walked");
        fs::hard_link(&path, tree.path().join("g")).expect("linked");
        let after = walked(tree.path()).expect("walked");
        assert_eq!(after.allocated, before.allocated);
        assert_eq!(
            after.lengths,
            2 * before.lengths,
            "as often as it has names"
        );
    }

    #[test]
    fn recent_changes_are_found() {
        let tree = tempfile::tempdir().expect("a directory");
        fs::write(tree.path().join("f"), vec![1; 1 << 20]).expect("written");
        File::open(tree.path().join("f"))
            .and_then(|file| file.sync_all())
            .expect("on disk");
        let directory = File::open(tree.path()).expect("a directory");
        let recent = |since| {
            walk(directory.as_fd(), since, || false)
                .expect("walked")
                .recent
        };
        assert!(recent(0) >= MIB);
        assert_eq!(recent(i64::MAX), 0);
    }

    #[test]
    fn a_deep_tree_is_walked_and_a_wide_deep_one_is_refused() {
        let tree = tempfile::tempdir().expect("a directory");
        let mut at = File::open(tree.path())
            .map(OwnedFd::from)
            .expect("a directory");
        for _ in 0..MAX_DEPTH + 50 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("made");
            at = open(at.as_fd(), c"d").expect("opened");
        }
        walked(tree.path()).expect("a chain has an end");
        let mut at = File::open(tree.path())
            .map(OwnedFd::from)
            .expect("a directory");
        for _ in 0..MAX_DEPTH + 50 {
            for side in ["x", "y", "z"] {
                rustix::fs::mkdirat(&at, side, Mode::RWXU).expect("made");
            }
            at = open(at.as_fd(), c"d").expect("opened");
        }
        // Which way is taken first is the file system's choice, so both are right.
        match walked(tree.path()) {
            Ok(usage) => assert!(usage.entries > 4 * MAX_DEPTH as u64),
            Err(error) => assert!(matches!(error, WalkError::TooDeep), "{error}"),
        }
    }

    #[test]
    fn pending_directory_names_are_limited() {
        let tree = tempfile::tempdir().expect("a directory");
        fs::create_dir(tree.path().join("d")).expect("made");
        let mut walk = Walk {
            recent_since: i64::MAX,
            usage: Usage::default(),
            linked: HashSet::new(),
            pending_bytes: MAX_PENDING_BYTES - cost(c"d"),
            buffer: Vec::with_capacity(64 * 1024),
        };
        let mut level = || {
            let directory = File::open(tree.path()).expect("a directory").into();
            walk.level(directory, &|| false)
        };
        assert!(level().is_ok());
        assert!(matches!(level(), Err(WalkError::TooMany)));
    }

    #[test]
    fn a_walk_can_be_cancelled() {
        let directory = File::open("/").expect("a directory");
        let outcome = walk(directory.as_fd(), i64::MAX, || true);
        assert!(matches!(outcome, Err(WalkError::Cancelled)));
    }
}
