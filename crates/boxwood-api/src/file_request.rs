//! Requests and responses for files of a session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::FileEntry;

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
