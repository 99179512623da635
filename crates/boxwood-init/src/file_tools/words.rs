//! Orders and answers, as they travel between the daemon and the one who does the work.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOrder {
    pub tool: FileTool,
    /// How long a search goes on before it answers with what it has.
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
    Grep(GrepOrder),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepOrder {
    pub pattern: String,
    pub path: String,
    pub include: Option<String>,
    pub file_type: Option<String>,
    pub ignore_case: bool,
    pub limit: usize,
    pub ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolAnswer {
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

/// A refusal, in the words that agents know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct ToolFailure {
    pub fault: ToolFault,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolFault {
    NotFound,
    Denied,
    NotADirectory,
    IsADirectory,
    NotAFile,
    NoSpace,
    ReadOnly,
    TooManyLinks,
    BadPath,
    /// A pattern that means nothing, or a text that is not there as often as was said.
    Unfit,
    /// More than is done in one call.
    TooLarge,
    Other,
}
