//! Validates request data with the rules of LangBot's pydantic models.
//!
//! Input: the JSON data of a request. Output: Boxwood's request types with the defaults of LangBot's
//! models, or pydantic's error text up to the error type. Values that pydantic accepts and a box cannot
//! have (a NUL in a command, infinitely many processors) are rejected in the same format, with the
//! messages of `boxwood-api`.

mod admission;
mod box_spec;
pub(crate) mod coerce;
mod context;
mod errors;
mod model;
mod mount;
mod paths;
mod process;
mod timestamp;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod mutation_tests;

pub(crate) use admission::{AdmissionGrant, admission_grant, admission_revocation};
pub(crate) use box_spec::{ValidSpec, box_spec};
pub(crate) use context::action_context;
#[cfg(test)]
pub(crate) use mount::ARTIFACT_ROOT;
pub(crate) use mount::MountProof;
pub(crate) use process::process_spec;
