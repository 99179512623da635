//! Decides what a caller may run.
//!
//! Input: a request, its origin, facts about its paths and the operator's rules. Output: an
//! [`Admission`] or a [`Denial`]. Pure: no I/O, no clocks, no async.
#![forbid(unsafe_code)]

mod admit;
mod denial;
mod explicit_fields;
mod label;
mod limits;
mod mounts;
mod origin;
mod profile;
mod rules;
mod spec;

pub use admit::{HOST_IMAGE, admit};
pub use denial::Denial;
pub use explicit_fields::SpecField;
pub use label::{check_label, check_required};
pub use mounts::path::{normalize, normalize_text};
pub use mounts::{BLOCKED, check_place};
pub use origin::Origin;
pub use profile::set::{ProfileConfig, Profiles};
pub use profile::{DEFAULT_TMP_MB, Maxima, Profile};
pub use rules::{MountsConfig, NetworkConfig, PolicyConfig, PolicyRules, RulesError};
pub use spec::record::{
    FileIdentity, Identify, MountRecord, PathRecord, RecordError, Reopen, SpecRecord,
};
pub use spec::{
    Admission, AdmittedExec, AdmittedMount, AdmittedSpec, BoxMount, BoxUser, Facts, Image, Joining,
    Limits, OpenedPath, OwnDirectory,
};
