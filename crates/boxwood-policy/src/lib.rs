//! Decides what a caller may run.
//!
//! Comes in: a request, the profile in force, who is asking, and facts about its paths. Goes out: an
//! [`Admission`] or a [`Denial`]. Never here: I/O, clocks, async. Same inputs, same answer.
#![forbid(unsafe_code)]

mod spec;

pub use spec::{
    Admission, AdmittedExec, AdmittedMount, AdmittedSpec, BoxUser, Facts, Image, Limits, OpenedPath,
};
