//! Size limits of skills.

use std::path::PathBuf;

use serde::Deserialize;

/// The `[skills.limits]` table of the configuration. Every limit is checked where the data enters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Size of an uploaded archive.
    pub max_zip_bytes: u64,
    /// Total unpacked size of an archive, an import or an export.
    pub max_unpacked_bytes: u64,
    /// Files and directories in one package.
    pub max_entries: usize,
    /// Maximum ratio of unpacked to packed size. The first [`Limits::RATIO_FLOOR_BYTES`] are
    /// exempt.
    pub max_ratio: u64,
    pub max_file_bytes: u64,
    /// Directory depth below the root of a package.
    pub max_path_depth: usize,
    /// Length of a path below the root of a package, in bytes.
    pub max_path_bytes: usize,
    pub max_skill_md_bytes: u64,
    /// Maximum entries in one file listing, even if the request allows more.
    pub max_listed_entries: usize,
    /// Maximum directories searched below one top-level directory of the store.
    pub max_searched_directories: usize,
    /// Directories that `scan` and `create` may import from. Absent: any that the daemon can read.
    pub import_roots: Option<Vec<PathBuf>>,
}

impl Limits {
    /// Text compresses well, and this size is harmless.
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
