//! What the store speaks of: skills, their files, and what one may ask for.
//!
//! Comes in: nothing. Goes out: plain data. Never here: JSON (the dialects make it), I/O.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::Warning;

/// One package with its `SKILL.md` read.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    pub name: String,
    pub display_name: String,
    pub description: String,
    /// The body of `SKILL.md`, line ends as `\n`.
    pub instructions: String,
    /// Absolute, without links.
    pub package_root: PathBuf,
    /// `SKILL.md` or `skill.md`.
    pub entry_file: String,
    /// The entry file's last change of any kind (ctime), which is what the platform shows.
    pub created_at: Timestamp,
    /// The entry file's last change of content (mtime).
    pub updated_at: Timestamp,
    pub warnings: Vec<Warning>,
}

/// A directory of the store that looks like a skill and could not be read as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: PathBuf,
    pub reason: String,
}

/// What `create` is asked for. `None` and blank both mean "take it from the imported package".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSkill {
    pub name: String,
    pub display_name: Option<String>,
    pub description: Option<String>,
    pub instructions: Option<String>,
    /// A directory to import; below the store's root it is taken over in place.
    pub package_root: Option<PathBuf>,
}

/// What `update` is asked for. `None` leaves a field as it is, a blank one removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillPatch {
    /// May only repeat the present name.
    pub name: Option<String>,
    pub display_name: Option<String>,
    pub description: Option<String>,
    pub instructions: Option<String>,
    /// May only repeat the present directory.
    pub package_root: Option<PathBuf>,
}

/// How an uploaded archive is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZipRequest {
    /// The name the archive had; the target directory is named after it.
    pub filename: String,
    /// A directory in the archive to start from; empty for all of it.
    pub source_subdir: String,
    /// Appended to the target directory's name.
    pub target_suffix: String,
}

impl Default for ZipRequest {
    fn default() -> Self {
        Self {
            filename: "skill.zip".to_owned(),
            source_subdir: String::new(),
            target_suffix: "upload".to_owned(),
        }
    }
}

/// Which skills of an archive to install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZipSelection {
    pub source_paths: Vec<String>,
    /// The older way to name a single one; counts when it is not blank.
    pub source_path: String,
}

/// A skill found in an archive. Its `package_root` is where it *would* be installed.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedSkill {
    pub skill: Skill,
    /// Its directory in the archive; empty for the root.
    pub source_path: String,
}

/// One directory of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileListing {
    pub skill: String,
    /// `.` for the package's root.
    pub base_path: String,
    pub entries: Vec<FileItem>,
    /// As many entries as were asked for, so there may be more.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileItem {
    /// Relative to the package's root.
    pub path: String,
    pub name: String,
    pub is_dir: bool,
    /// `None` for directories.
    pub size: Option<u64>,
    pub is_symlink: bool,
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    pub skill: String,
    /// Normalised, relative to the package's root.
    pub path: String,
    /// Line ends as `\n`, whatever the file has: the platform's editor works on these.
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryFile {
    pub skill: String,
    pub path: String,
    /// The bytes as they are on disk.
    pub content: Vec<u8>,
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    pub skill: String,
    pub path: String,
    pub bytes_written: u64,
}
