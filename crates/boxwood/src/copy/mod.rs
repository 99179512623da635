//! Copies files between this machine and a box.
//!
//! Comes in: a client and two places. Goes out: files, and a count of them. Symbolic links are never
//! followed below the named source and never created: one that came out of a box could point at
//! anything here, and one that goes in could carry a file nobody meant to give away.

mod into_box;
mod out_of_box;
mod partial;
mod progress;

pub(crate) use into_box::into_box;
pub(crate) use out_of_box::out_of_box;
pub(crate) use partial::Partial;
pub(crate) use progress::Progress;
