//! Skills: packages of instructions and files that boxes can have mounted.
//!
//! Comes in: nothing. Goes out: what may be asked of the skill store, and its answers. Never here: a
//! host path; where the store keeps a package is the operator's affair.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A skill without its instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillInfo {
    pub name: String,
    pub display_name: String,
    pub description: String,
    /// When its entry file was last put in place.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When the contents of its entry file last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// Where the skill departs from the Agent Skills rules. It works all the same.
    pub warnings: Vec<SkillWarning>,
}

/// One departure from the rules.
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
    /// The body of the entry file, below its front matter.
    pub instructions: String,
    /// The entry file's name, `SKILL.md` as a rule.
    pub entry_file: String,
}

/// All skills, the one changed last first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillList {
    pub skills: Vec<SkillInfo>,
    /// Packages that are in the store and cannot be read.
    pub problems: Vec<SkillProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillProblem {
    /// Relative to the store.
    pub path: String,
    pub message: String,
}

/// A new skill, made of text. Files are added to it afterwards.
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

/// A directory in a box that becomes a skill of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterSkillRequest {
    /// An absolute path inside the box. A `SKILL.md` is in it, or just below it.
    pub path: String,
    /// What the skill is called; what its `SKILL.md` says when left out.
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

/// What shall change; what is left out stays. A skill keeps its name.
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

/// The answer to a deleted skill.
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
    /// Of a file; directories have none.
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
    /// There are more than were asked for.
    pub truncated: bool,
}

/// The answer to a written file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrittenSkillFile {
    pub path: String,
    pub bytes_written: u64,
}

/// Within one package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveSkillFileRequest {
    pub from: String,
    pub to: String,
}

/// The answer to a moved file.
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
    /// Its directory in the archive; empty for the archive's own top. This is what `source_path`
    /// selects by.
    pub source_path: String,
    pub warnings: Vec<SkillWarning>,
}

/// What an archive holds, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillIntake {
    /// With `preview=true`: every skill in the archive. Empty after an installation.
    pub planned: Vec<PlannedSkill>,
    /// The skills that are now in the store. Empty with `preview=true`.
    pub installed: Vec<SkillInfo>,
}
