//! How much room a directory takes on the disk.
//!
//! Comes in: a directory that somebody may be filling right now. Goes out: its size. Never here: a path
//! below it, or a link that is followed: every step goes from one open directory to the next, so whoever
//! swaps a directory for a link in the meantime leads nowhere else.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// No install has more files; even an empty one costs the disk something.
const MOST_FILES: u64 = 2_000_000;
/// What the kernel counts in.
const BLOCK: u64 = 512;
/// Directories that are open at once: one for every level that has more than one way down.
const DEEPEST: usize = 256;

/// In bytes. Stops counting past `most`. What goes while it looks is not counted.
pub(crate) fn measure(directory: &Path, most: u64) -> io::Result<u64> {
    let mut count = Count {
        bytes: 0,
        files: 0,
        most,
    };
    let mut levels = Vec::new();
    if let Some(top) = open(CWD, directory)? {
        levels.push(count.level(top)?);
    }
    while let Some(level) = levels.last_mut() {
        if count.is_past() {
            return Ok(count.bytes.max(most.saturating_add(1)));
        }
        let Some(name) = level.below.pop() else {
            levels.pop();
            continue;
        };
        let opened = open(&level.directory, name.as_c_str())?;
        if level.below.is_empty() {
            // A chain of directories, however long, takes one descriptor.
            levels.pop();
        }
        let Some(opened) = opened else {
            continue;
        };
        if levels.len() >= DEEPEST {
            let why = format!("it has more than {DEEPEST} directories inside each other");
            return Err(io::Error::other(why));
        }
        levels.push(count.level(opened)?);
    }
    Ok(count.bytes)
}

struct Level {
    directory: OwnedFd,
    /// Directories in it that nobody has looked into yet.
    below: Vec<CString>,
}

struct Count {
    bytes: u64,
    files: u64,
    most: u64,
}

impl Count {
    fn level(&mut self, directory: OwnedFd) -> io::Result<Level> {
        let mut below = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = match entry {
                // The directory itself was removed.
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.add(&stat);
            if self.is_past() {
                break;
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                below.push(name.to_owned());
            }
        }
        Ok(Level { directory, below })
    }

    fn add(&mut self, stat: &Stat) {
        let taken = u64::try_from(stat.st_blocks).unwrap_or(0);
        let taken = taken.saturating_mul(BLOCK);
        #[allow(
            clippy::unnecessary_cast,
            reason = "it has another type on other machines"
        )]
        let names = (stat.st_nlink as u64).max(1);
        // Of a file with several names, each counts its share.
        self.bytes = self.bytes.saturating_add(taken / names);
        self.files += 1;
    }

    fn is_past(&self) -> bool {
        self.bytes > self.most || self.files > MOST_FILES
    }
}

/// `None` when it is gone, or no directory any more.
fn open(at: impl AsFd, name: impl Arg) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_byte_counts_once_and_counting_ends_past_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("a")).expect("made");
        fs::write(dir.path().join("a/file"), vec![1; 1 << 20]).expect("written");
        std::os::unix::fs::symlink("/", dir.path().join("link")).expect("made");
        let alone = measure(dir.path(), u64::MAX).expect("measured");
        assert!((1 << 20..3 << 20).contains(&alone), "{alone}");
        fs::hard_link(dir.path().join("a/file"), dir.path().join("b")).expect("made");
        let linked = measure(dir.path(), u64::MAX).expect("measured");
        assert!(linked < 3 << 20, "{linked}");
        assert!(measure(dir.path(), 1000).expect("measured") > 1000);
        assert_eq!(measure(&dir.path().join("gone"), 1).expect("nothing"), 0);
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_leads_nowhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let elsewhere = tempfile::tempdir().expect("a directory");
        fs::write(elsewhere.path().join("large"), vec![1; 1 << 20]).expect("written");
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).expect("made");
        let top = open(CWD, dir.path()).expect("opened").expect("there");
        // As it is when it was a directory a moment ago.
        let swapped = open(&top, c"link").expect("looked at");
        assert!(swapped.is_none());
        let link = dir.path().join("link");
        assert_eq!(measure(&link, u64::MAX).expect("measured"), 0);
    }

    #[test]
    fn a_chain_that_no_path_can_name_is_measured_to_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path().join("top");
        fs::create_dir(&top).expect("made");
        let mut at = open(CWD, &top).expect("opened").expect("there");
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).expect("made");
            at = open(&at, c"d").expect("opened").expect("there");
        }
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = rustix::fs::openat(&at, c"file", flags, Mode::RUSR).expect("made");
        rustix::io::write(&file, &vec![1; 1 << 20]).expect("written");
        let bytes = measure(&top, u64::MAX);
        crate::hosting::remove_tree::remove_tree(&top).expect("removed");
        assert!(bytes.expect("measured") >= 1 << 20);
    }
}
