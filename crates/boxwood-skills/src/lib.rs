//! The skill store: installs, lists and changes skill packages and their files.
//!
//! Synchronous; callers use `spawn_blocking`. Authorization and JSON are handled by the callers. Only imports read
//! outside the root of the store.
#![forbid(unsafe_code)]

mod archive;
mod beneath;
mod changes;
mod copying;
mod error;
mod files;
mod front_matter;
mod index;
mod limits;
mod loading;
mod naming;
mod package_path;
mod python;
mod skill;
mod store;

pub use error::{Oversize, SkillError};
pub use limits::Limits;
pub use python::python_isoformat;
pub use skill::{
    BinaryFile, FileListing, NewSkill, PlannedSkill, Problem, Skill, SkillPatch, TextFile,
    WrittenFile, ZipRequest, ZipSelection,
};
pub use store::{SkillStore, real_path};
