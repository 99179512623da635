//! Operations on files of a box. Paths are absolute paths *inside* the box and are resolved there.

use std::fs::File;

use boxwood_api::FileEntry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFor {
    Read,
    /// Fails when the file exists. `mode` are the permission bits.
    CreateNew {
        mode: u32,
    },
    /// Creates or truncates.
    Write {
        mode: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// Regular files only; anything else is [`crate::FileFault::NotAFile`].
    Open {
        path: String,
        how: OpenFor,
    },
    /// Follows the last symlink only when `follow` is set.
    Stat {
        path: String,
        follow: bool,
    },
    /// At most `limit` entries, sorted by name.
    List {
        path: String,
        limit: usize,
    },
    Mkdir {
        path: String,
        parents: bool,
    },
    Move {
        from: String,
        to: String,
        overwrite: bool,
    },
    Remove {
        path: String,
        recursive: bool,
    },
}

#[derive(Debug)]
pub enum FileAnswer {
    /// An open regular file on one of the box's own file systems (never procfs), blocking I/O.
    Opened {
        file: File,
        entry: FileEntry,
    },
    Entry(FileEntry),
    Entries {
        entries: Vec<FileEntry>,
        truncated: bool,
    },
    Done,
}
