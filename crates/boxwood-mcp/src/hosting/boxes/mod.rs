//! The boxes that hosting creates: their specs and names, and cleanup.

pub(crate) mod box_spec;
pub(crate) mod cleanup;
pub(crate) mod ids;
pub(crate) mod keyed_locks;
pub(crate) mod temporary_box;
