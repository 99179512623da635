//! Decides what a caller may run.
//!
//! Input: a request, its origin, facts about its paths and the operator's rules. Output: an
//! [`Admission`] or a [`Denial`]. Pure: no I/O, no clocks, no async.
#![forbid(unsafe_code)]

mod admit;
mod asked;
mod config_hash;
mod denial;
mod drift;
mod image;
mod label;
mod limits;
mod mounts;
mod origin;
mod own;
mod path;
mod profile;
mod profile_set;
mod record;
mod rules;
mod skills;
mod spec;
mod targets;
mod twin;

pub use admit::admit;
pub use asked::SpecField;
pub use denial::Denial;
pub use image::HOST_IMAGE;
pub use label::{check_label, check_required};
pub use mounts::{BLOCKED, check_place};
pub use origin::Origin;
pub use path::{normalize, normalize_text};
pub use profile::{DEFAULT_TMP_MB, Maxima, Profile};
pub use profile_set::{ProfileConfig, ProfileError, Profiles, UnknownProfile};
pub use record::{
    FileIdentity, Identify, MountRecord, PathRecord, RecordError, Reopen, SpecRecord,
};
pub use rules::{MountsConfig, NetworkConfig, PolicyConfig, PolicyRules, RulesError};
pub use spec::{
    Admission, AdmittedExec, AdmittedMount, AdmittedSpec, BoxUser, Facts, Image, Joining, Limits,
    OpenedPath, OwnDirectory,
};
