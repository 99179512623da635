//! What the native backend's test binaries share.

pub mod absent;
pub mod harness;
pub mod host;
