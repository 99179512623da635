//! Requests, responses and errors of the file tools, as sent between the daemon and the box.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileToolRequest {
    pub tool: FileTool,
    /// A search that takes longer returns a partial result.
    pub search_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileTool {
    Read {
        path: String,
        /// Counted from 1.
        offset: u64,
        limit: Option<u64>,
        max_bytes: u64,
    },
    Write {
        path: String,
        content: String,
    },
    Edit {
        path: String,
        old: String,
        new: String,
        all: bool,
    },
    Glob {
        pattern: String,
        path: String,
        limit: usize,
        ignored: bool,
    },
    Grep(GrepQuery),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepQuery {
    pub pattern: String,
    pub path: String,
    pub include: Option<String>,
    pub file_type: Option<String>,
    pub ignore_case: bool,
    pub limit: usize,
    pub ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileToolResponse {
    Read(Text),
    Write(Written),
    Edit(Edited),
    Glob(Found),
    Grep(Lines),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    pub content: String,
    pub is_directory: bool,
    pub is_binary: bool,
    pub first_line: u64,
    pub lines: u64,
    pub total_lines: Option<u64>,
    pub size: u64,
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub size: u64,
    pub created: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edited {
    pub replaced: u64,
    pub diff: String,
    pub size: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub paths: Vec<String>,
    pub total: u64,
    pub truncated: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    pub lines: Vec<GrepLine>,
    pub total: u64,
    pub truncated: bool,
    pub files_searched: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GrepLine {
    pub file: String,
    pub line: u64,
    pub content: String,
}

/// An error with the message that agents see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct FileToolError {
    pub fault: FileToolErrorKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileToolErrorKind {
    NotFound,
    Denied,
    NotADirectory,
    IsADirectory,
    NotAFile,
    NoSpace,
    ReadOnly,
    TooManyLinks,
    BadPath,
    /// An invalid pattern, or a text that does not occur exactly as requested.
    InvalidArgument,
    /// Over the size limit of one call.
    TooLarge,
    Other,
}

impl FileToolError {
    pub(super) fn new(fault: FileToolErrorKind, text: impl Into<String>) -> Self {
        Self {
            fault,
            text: text.into(),
        }
    }

    pub(super) fn is_a_directory(path: &str) -> Self {
        Self::new(
            FileToolErrorKind::IsADirectory,
            format!("Path is a directory: {path}"),
        )
    }

    pub(super) fn not_a_file(path: &str) -> Self {
        Self::new(
            FileToolErrorKind::NotAFile,
            format!("Not a regular file: {path}"),
        )
    }

    /// `missing` is the message for a path that does not exist.
    pub(super) fn of(path: &str, missing: &str) -> impl Fn(io::Error) -> Self {
        move |error| {
            let errno = error.raw_os_error().map(Errno::from_raw_os_error);
            let (fault, text) = match errno {
                Some(Errno::NOENT | Errno::NOTDIR) => (FileToolErrorKind::NotFound, missing),
                Some(Errno::ACCESS | Errno::PERM) => {
                    (FileToolErrorKind::Denied, "Permission denied")
                }
                Some(Errno::ISDIR) => return Self::is_a_directory(path),
                Some(Errno::NXIO | Errno::NODEV) => return Self::not_a_file(path),
                Some(Errno::NOSPC | Errno::DQUOT) => {
                    (FileToolErrorKind::NoSpace, "No space left on device")
                }
                Some(Errno::ROFS) => (FileToolErrorKind::ReadOnly, "Read-only file system"),
                Some(Errno::LOOP) => (FileToolErrorKind::TooManyLinks, "Too many symbolic links"),
                Some(Errno::NAMETOOLONG | Errno::INVAL) => {
                    (FileToolErrorKind::BadPath, "Not a valid path")
                }
                _ => return Self::new(FileToolErrorKind::Other, format!("{path}: {error}")),
            };
            Self::new(fault, format!("{text}: {path}"))
        }
    }
}
