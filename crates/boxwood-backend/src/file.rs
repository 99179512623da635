//! Operations on files of a box. Paths are absolute paths *inside* the box and are resolved there.

use std::fs::File;

use boxwood_api::{
    EditTextRequest, EditedText, FileEntry, GlobMatches, GlobRequest, GrepMatches, GrepRequest,
    ReadTextRequest, TextSlice, WriteTextRequest, WrittenText,
};

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
    /// Takes and returns text; no descriptor leaves the box.
    Tool(FileTool),
}

impl FileCall {
    pub fn path(&self) -> &str {
        match self {
            Self::Open { path, .. }
            | Self::Stat { path, .. }
            | Self::List { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Remove { path, .. }
            | Self::Move { from: path, .. } => path,
            Self::Tool(tool) => tool.path(),
        }
    }

    /// The path at which the call can add data to the box; `None` if it cannot.
    pub fn adds_to(&self) -> Option<&str> {
        match self {
            Self::Open { path, how } => (*how != OpenFor::Read).then_some(path),
            Self::Mkdir { path, .. } => Some(path),
            Self::Tool(tool @ (FileTool::Write(_) | FileTool::Edit(_))) => Some(tool.path()),
            Self::Stat { .. }
            | Self::List { .. }
            | Self::Move { .. }
            | Self::Remove { .. }
            | Self::Tool(FileTool::Read(_) | FileTool::Glob(_) | FileTool::Grep(_)) => None,
        }
    }
}

/// File tools of agents. Each runs as one operation inside the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTool {
    Read(ReadTextRequest),
    /// Atomic: concurrent readers see either the old text or the new one.
    Write(WriteTextRequest),
    Edit(EditTextRequest),
    Glob(GlobRequest),
    Grep(GrepRequest),
}

impl FileTool {
    pub fn path(&self) -> &str {
        match self {
            Self::Read(request) => &request.path,
            Self::Write(request) => &request.path,
            Self::Edit(request) => &request.path,
            Self::Glob(request) => &request.path,
            Self::Grep(request) => &request.path,
        }
    }
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
    Tool(FileToolAnswer),
}

/// The result of the [`FileTool`] with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileToolAnswer {
    Read(TextSlice),
    Write(WrittenText),
    Edit(EditedText),
    Glob(GlobMatches),
    Grep(GrepMatches),
}
