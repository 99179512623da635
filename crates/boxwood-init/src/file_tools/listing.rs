//! What a directory holds, a part at a time.
//!
//! Comes in: an open directory. Goes out: names and kinds of files, links and directories, in the
//! directory's own order. Never here: what is skipped wherever it is, and what is none of the three.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, RawDir, statat};

use super::leash::Leash;
use super::rules::Signs;

/// Entries of one part.
pub(super) const PART: usize = 128;
/// Bytes that the kernel is asked for at once.
const BYTES: usize = 32 * 1024;

/// What is never looked into, nor shown, at whatever depth.
const SKIPPED: [&[u8]; 8] = [
    b".git",
    b"node_modules",
    b"__pycache__",
    b".venv",
    b"venv",
    b".tox",
    b"dist",
    b"build",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Link,
    Directory,
}

/// Names one behind the other: a piece of memory for each would cost more than the names.
#[derive(Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<(Kind, usize)>,
}

impl Names {
    pub(super) fn push(&mut self, kind: Kind, name: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.ends.push((kind, self.bytes.len()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(kind, end)| {
            let name = &self.bytes[start..end];
            start = end;
            (kind, name)
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Room for listings, one after the other.
pub(super) struct Room {
    bytes: Vec<u8>,
    part: Names,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            bytes: Vec::with_capacity(BYTES),
            part: Names::default(),
        }
    }
}

pub(super) struct Listing<'a> {
    directory: BorrowedFd<'a>,
    entries: RawDir<'a, BorrowedFd<'a>>,
    part: &'a mut Names,
    /// Names of rules that were seen so far.
    signs: Signs,
    is_over: bool,
}

impl<'a> Listing<'a> {
    pub(super) fn new(directory: BorrowedFd<'a>, room: &'a mut Room) -> Self {
        Self {
            directory,
            entries: RawDir::new(directory, room.bytes.spare_capacity_mut()),
            part: &mut room.part,
            signs: Signs::NONE,
            is_over: false,
        }
    }

    /// Goes on to the next part, unless there is none. Of a part nothing may be left to tell.
    pub(super) fn read_on(&mut self, leash: &Leash) -> bool {
        if self.is_over {
            return false;
        }
        self.part.clear();
        for _ in 0..PART {
            let Some(entry) = self.entries.next() else {
                self.is_over = true;
                break;
            };
            let Ok(entry) = entry else {
                leash.leave_out();
                self.is_over = true;
                break;
            };
            let name = entry.file_name().to_bytes();
            self.signs.see(name);
            if name == b"." || name == b".." || SKIPPED.contains(&name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = statat(self.directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                    stat.map_or(FileType::Unknown, |stat| {
                        FileType::from_raw_mode(stat.st_mode)
                    })
                }
                kind => kind,
            };
            let kind = match kind {
                FileType::RegularFile => Kind::File,
                FileType::Symlink => Kind::Link,
                FileType::Directory => Kind::Directory,
                _ => continue,
            };
            self.part.push(kind, name);
        }
        true
    }

    /// Those of this part.
    pub(super) fn names(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        self.part.iter()
    }

    /// Whether this part is the last one.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Which rules the directory may have: with its last part it is known which it has.
    pub(super) fn signs(&self) -> Signs {
        if self.is_over { self.signs } else { Signs::ANY }
    }
}
