//! What the native backend's test binaries share.

pub(crate) mod absent;
pub(crate) mod harness;
pub(crate) mod host;
