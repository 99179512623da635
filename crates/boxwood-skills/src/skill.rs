//! Data types of the store: skills, files and requests.

use std::path::PathBuf;

use boxwood_api::{SkillFile, SkillWarning};
use jiff::Timestamp;

/// A package with its parsed `SKILL.md`.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    pub name: String,
    pub display_name: String,
    pub description: String,
    /// The body of `SKILL.md`, with `\n` line ends.
    pub instructions: String,
    /// Absolute, with links resolved.
    pub package_root: PathBuf,
    /// `SKILL.md` or `skill.md`.
    pub entry_file: String,
    /// The ctime of the entry file, which LangBot Box reports.
    pub created_at: Timestamp,
    /// The mtime of the entry file.
    pub updated_at: Timestamp,
    /// Deviations from the Agent Skills specification.
    pub warnings: Vec<SkillWarning>,
}

/// A part of the store that is missing from the listing: an entry file that cannot be read, or directories above a
/// limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: PathBuf,
    pub reason: String,
}

/// Parameters of `create`. `None` and blank both mean "use the value of the imported package".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSkill {
    pub name: String,
    pub display_name: Option<String>,
    pub description: Option<String>,
    pub instructions: Option<String>,
    /// A directory to import. Inside the store it is registered in place.
    pub package_root: Option<PathBuf>,
}

/// Parameters of `update`. `None` keeps a field, blank removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillPatch {
    /// Must equal the current name if set.
    pub name: Option<String>,
    pub display_name: Option<String>,
    pub description: Option<String>,
    pub instructions: Option<String>,
    /// Must equal the current directory if set.
    pub package_root: Option<PathBuf>,
}

/// How to read an uploaded archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZipRequest {
    /// File name of the archive. The target directory is named after it.
    pub filename: String,
    /// Directory in the archive to start from. Empty for the whole archive.
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

/// Selects the skills of an archive to install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZipSelection {
    pub source_paths: Vec<String>,
    /// Older form for a single skill. Ignored if blank.
    pub source_path: String,
}

/// A skill in an archive. Its `package_root` is where it would be installed.
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
    pub entries: Vec<SkillFile>,
    /// The listing reached its limit, so there may be more entries.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    pub skill: String,
    /// Normalized, relative to the root of the package.
    pub path: String,
    /// With `\n` line ends, which the editor of LangBot expects.
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryFile {
    pub skill: String,
    pub path: String,
    /// The bytes on disk.
    pub content: Vec<u8>,
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    pub skill: String,
    pub path: String,
    pub bytes_written: u64,
}
