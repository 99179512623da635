//! What agents' file tools ask of a session's files, and the answers. All of it is done inside the box.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Some lines of a text file, or the names in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTextRequest {
    /// An absolute path inside the box.
    pub path: String,
    /// The first line wanted, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub offset: Option<u64>,
    /// At most so many lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// At most so many bytes of text, cut at the end of a character.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextSlice {
    pub path: String,
    /// Bytes that are not UTF-8 are replaced. Empty where the file is binary. The sorted names, one a
    /// line, where it is a directory.
    pub content: String,
    pub is_directory: bool,
    /// Whether the file has NUL bytes near its beginning, so that its text would mean nothing.
    pub is_binary: bool,
    /// The first line in `content`, counted from 1.
    pub first_line: u64,
    /// How many lines `content` has.
    pub lines: u64,
    /// How many the file has; `None` where it was not read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
    /// The file's size in bytes.
    pub size: u64,
    /// There is more behind `content`.
    pub truncated: bool,
}

/// A whole text file, in place of what was there.
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
    /// Whether the file is new.
    pub created: bool,
}

/// An exact text in a file, replaced by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditTextRequest {
    pub path: String,
    pub old_string: String,
    pub new_string: String,
    /// Every place instead of the only one.
    #[serde(default)]
    pub replace_all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditedText {
    pub path: String,
    pub replaced: u64,
    /// What changed, as a unified diff with three lines of context; cut where it is very long.
    pub diff: String,
    pub size: u64,
}

/// Files whose path below `path` fits a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GlobRequest {
    /// Such as `*.py` or `src/**/*.rs`; a pattern without a slash fits in every directory.
    pub pattern: String,
    pub path: String,
    /// At most so many matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Also what `.gitignore` and its kin leave out.
    #[serde(default)]
    pub ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GlobMatches {
    /// Absolute paths, those changed last first.
    pub matches: Vec<String>,
    /// How many there are; with `truncated`, how many were seen before the search was given up.
    pub total: u64,
    pub truncated: bool,
}

/// Lines of files that fit a regular expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepRequest {
    pub pattern: String,
    /// A directory, or one file.
    pub path: String,
    /// Only files that fit this glob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<String>,
    /// Only files of this type as ripgrep names them, such as `py` or `rust`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_type: Option<String>,
    #[serde(default)]
    pub ignore_case: bool,
    /// At most so many matching lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Also what `.gitignore` and its kin leave out.
    #[serde(default)]
    pub ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatch {
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    /// Without its line ending; a very long line is cut.
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatches {
    pub matches: Vec<GrepMatch>,
    pub total: u64,
    pub truncated: bool,
    pub files_searched: u64,
}
