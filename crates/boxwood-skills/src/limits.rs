//! How much one skill may be.
//!
//! Comes in: the operator's `[skills]` table. Goes out: numbers that every door of the store
//! checks. Never here: judgement about who may ask.

use std::path::PathBuf;

use serde::Deserialize;

/// The operator's bounds on the store. Every one of them is checked where the bytes enter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The archive as it was sent.
    pub max_zip_bytes: u64,
    /// Everything an archive, an import or an export holds once unpacked.
    pub max_unpacked_bytes: u64,
    /// Files and directories in one package.
    pub max_entries: usize,
    /// How many times larger than the archive its contents may be. Small archives are let off:
    /// the first [`Limits::RATIO_FLOOR_BYTES`] never count as a bomb.
    pub max_ratio: u64,
    pub max_file_bytes: u64,
    /// Directories between a package's root and a file.
    pub max_path_depth: usize,
    /// Bytes of a path below a package's root.
    pub max_path_bytes: usize,
    pub max_skill_md_bytes: u64,
    /// Entries in one answer of a file listing, whatever was asked for.
    pub max_listed_entries: usize,
    /// Directories looked at below one directory of the store while skills are searched.
    pub max_searched_directories: usize,
    /// Where `scan` and `create` may take packages from. Absent: anywhere the daemon can read.
    pub import_roots: Option<Vec<PathBuf>>,
}

impl Limits {
    /// Text compresses well; below this size nobody's disk is in danger.
    pub const RATIO_FLOOR_BYTES: u64 = 4 << 20;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_zip_bytes: 64 << 20,
            max_unpacked_bytes: 256 << 20,
            max_entries: 10_000,
            max_ratio: 200,
            max_file_bytes: 64 << 20,
            max_path_depth: 32,
            max_path_bytes: 1024,
            max_skill_md_bytes: 1 << 20,
            max_listed_entries: 10_000,
            max_searched_directories: 2_000,
            import_roots: None,
        }
    }
}
