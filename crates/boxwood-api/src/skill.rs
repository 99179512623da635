//! Skills: packages of instructions and files that can be mounted into boxes.
//!
//! Host paths of the store are not exposed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A skill without its instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillInfo {
    pub name: String,
    pub display_name: String,
    pub description: String,
    /// When its entry file was last replaced.
    pub created_at: Timestamp,
    /// When the contents of its entry file last changed.
    pub updated_at: Timestamp,
    /// Deviations from the Agent Skills specification. The skill works regardless.
    pub warnings: Vec<SkillWarning>,
}

/// One deviation from the specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillWarning {
    /// Stable, such as `name_missing`.
    pub code: String,
    pub message: String,
}

/// One skill with its instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillDetail {
    #[serde(flatten)]
    pub skill: SkillInfo,
    /// The body of the entry file, without front matter.
    pub instructions: String,
    /// The name of the entry file, usually `SKILL.md`.
    pub entry_file: String,
}

/// All skills, most recently changed first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillList {
    pub skills: Vec<SkillInfo>,
    /// Packages in the store that cannot be read.
    pub problems: Vec<SkillProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillProblem {
    /// Relative to the store.
    pub path: String,
    pub message: String,
}

/// A new skill. Files can be added afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSkillRequest {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// Registers a directory of a box as a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterSkillRequest {
    /// An absolute path inside the box. It contains a `SKILL.md`, directly or one level below.
    pub path: String,
    /// The skill's name. Default: the name in its `SKILL.md`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// Fields to change; absent fields are kept. The name cannot be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSkillRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// The response for a deleted skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedSkill {
    pub deleted: String,
}

/// One entry of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillFile {
    /// Relative to the package.
    pub path: String,
    pub name: String,
    pub is_dir: bool,
    /// Size of a file; absent for directories.
    pub size: Option<u64>,
    pub is_symlink: bool,
    pub executable: bool,
}

/// One directory of a package, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillFileList {
    /// The directory, relative to the package; `.` is the package itself.
    pub path: String,
    pub entries: Vec<SkillFile>,
    /// There are more entries than requested.
    pub truncated: bool,
}

/// The response for a written file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrittenSkillFile {
    pub path: String,
    pub bytes_written: u64,
}

/// Both paths are relative to the package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveSkillFileRequest {
    pub from: String,
    pub to: String,
}

/// The response for a moved file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovedSkillFile {
    pub from: String,
    pub to: String,
}

/// A skill found in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedSkill {
    pub name: String,
    pub display_name: String,
    pub description: String,
    /// Its directory in the archive, empty for the top level. `source_path` selects by this value.
    pub source_path: String,
    pub warnings: Vec<SkillWarning>,
}

/// The contents of an archive, or the result of its installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillIntake {
    /// With `preview=true`: every skill in the archive. Empty after an installation.
    pub planned: Vec<PlannedSkill>,
    /// The installed skills. Empty with `preview=true`.
    pub installed: Vec<SkillInfo>,
}
