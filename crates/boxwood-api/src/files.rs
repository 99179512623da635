//! Files inside a session, and the agents' file tools, which run inside the box.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Lines of a text file, or the names in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTextRequest {
    /// An absolute path inside the box.
    pub path: String,
    /// The first line, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub offset: Option<u64>,
    /// Maximum number of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Maximum number of bytes, truncated at a character boundary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextSlice {
    pub path: String,
    /// Invalid UTF-8 is replaced. Empty for a binary file. For a directory: its sorted names, one
    /// per line.
    pub content: String,
    pub is_directory: bool,
    /// Whether the file has NUL bytes near its start.
    pub is_binary: bool,
    /// The first line in `content`, counted from 1.
    pub first_line: u64,
    /// Number of lines in `content`.
    pub lines: u64,
    /// Number of lines in the file; absent if it was not read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
    /// File size in bytes.
    pub size: u64,
    /// There is more text after `content`.
    pub truncated: bool,
}

/// Replaces the whole content of a text file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteTextRequest {
    pub path: String,
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrittenText {
    pub path: String,
    pub size: u64,
    /// Whether the file was created.
    pub created: bool,
}

/// Replaces an exact text in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditTextRequest {
    pub path: String,
    pub old_string: String,
    pub new_string: String,
    /// Replace all occurrences instead of requiring exactly one.
    #[serde(default)]
    pub replace_all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditedText {
    pub path: String,
    pub replaced: u64,
    /// The change as a unified diff with three lines of context; truncated if very long.
    pub diff: String,
    pub size: u64,
}

/// Finds files whose path below `path` matches a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GlobRequest {
    /// For example `*.py` or `src/**/*.rs`. A pattern without a slash matches in every directory.
    pub pattern: String,
    pub path: String,
    /// Maximum number of matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Include files that `.gitignore` and similar files exclude.
    #[serde(default)]
    pub ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GlobMatches {
    /// Absolute paths, most recently changed first.
    pub matches: Vec<String>,
    /// Number of matches. With `truncated`: number found before the search stopped.
    pub total: u64,
    pub truncated: bool,
}

/// Finds lines that match a regular expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepRequest {
    pub pattern: String,
    /// A directory or a file.
    pub path: String,
    /// Only files that match this glob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<String>,
    /// Only files of this type, with the names of ripgrep, such as `py` or `rust`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_type: Option<String>,
    #[serde(default)]
    pub ignore_case: bool,
    /// Maximum number of matching lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Include files that `.gitignore` and similar files exclude.
    #[serde(default)]
    pub ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatch {
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    /// Without line ending; truncated if very long.
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatches {
    pub matches: Vec<GrepMatch>,
    pub total: u64,
    pub truncated: bool,
    pub files_searched: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// The last component; bytes that are not UTF-8 are replaced.
    pub name: String,
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits, e.g. 420 for `0644`.
    pub mode: u32,
    pub modified_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
}

/// A directory's entries, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    pub path: String,
    pub entries: Vec<FileEntry>,
    /// There are more entries than requested.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MkdirRequest {
    pub path: String,
    /// Create missing parent directories, and succeed if the directory exists.
    #[serde(default)]
    pub parents: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    pub from: String,
    pub to: String,
    #[serde(default)]
    pub overwrite: bool,
}

/// The response for a deleted file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedFile {
    pub deleted: String,
}
