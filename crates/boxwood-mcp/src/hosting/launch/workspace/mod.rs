//! The host directories a server works on: inference from paths, mapping into the box, and digest.

pub(super) mod digest;
pub(super) mod infer;
pub(super) mod manifests;
pub(super) mod paths;
