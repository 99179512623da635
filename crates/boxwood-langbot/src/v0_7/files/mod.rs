//! Files of LangBot on this host.

pub(crate) mod artifacts;
pub(crate) mod local_dirs;
pub(crate) mod volume_probe;
