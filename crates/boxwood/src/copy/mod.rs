//! Copies files between this machine and a box.
//!
//! Symbolic links are never followed below the named source and never created: one from a box could point at any file of
//! the host, and one into a box could copy a file by accident.

mod entries;
mod into_box;
mod out_of_box;
mod partial;
mod progress;

pub(crate) use entries::entries;
pub(crate) use into_box::into_box;
pub(crate) use out_of_box::out_of_box;
pub(crate) use partial::Partial;
pub(crate) use progress::Progress;
