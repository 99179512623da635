//! Skill packages: intake, listing, files.
//!
//! Comes in: names, relative paths, archives, directories to import. Goes out: skills, file
//! contents, package directories to mount. Never here: who may ask, JSON, async, anything
//! outside the store's root (except reading a directory that is being imported).
#![forbid(unsafe_code)]

mod archive;
mod atomic;
mod beneath;
mod changes;
mod copying;
mod discovery;
mod error;
mod export;
mod files;
mod front_matter;
mod index;
mod install;
mod limits;
mod loading;
mod naming;
mod package_path;
mod python_text;
mod removal;
mod rules;
mod skill;
mod staging;
mod store;
mod times;
mod validation;
mod warning;

pub use error::{Oversize, SkillError};
pub use limits::Limits;
pub use skill::{
    BinaryFile, FileItem, FileListing, NewSkill, PlannedSkill, Problem, Skill, SkillPatch,
    TextFile, WrittenFile, ZipRequest, ZipSelection,
};
pub use store::SkillStore;
pub use times::python_isoformat;
pub use warning::Warning;
