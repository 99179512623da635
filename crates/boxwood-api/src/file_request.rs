//! What may be asked of a session's files, and the answers that are not one entry.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::FileEntry;

/// A directory's entries, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    pub path: String,
    pub entries: Vec<FileEntry>,
    /// There are more than were asked for.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MkdirRequest {
    pub path: String,
    /// Also make the directories above it, and be content when it exists.
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

/// The answer to a removed file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedFile {
    pub deleted: String,
}
