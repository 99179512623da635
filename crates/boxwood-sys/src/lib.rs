//! Thin wrappers around kernel calls. Besides `boxwood-init` the only crate with `unsafe`.
//!
//! Functions take plain values and borrowed descriptors and return every failure to the caller.

pub mod clone;
pub mod fsid;
pub mod inherited;
pub mod landlock;
pub mod memory;
pub mod mount;
pub mod netlink;
pub mod nftables;
pub mod peer;
pub mod procfs;
pub mod seccomp;
pub mod signals;
pub mod sock_diag;
pub mod tree;
