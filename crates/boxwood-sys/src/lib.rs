//! Thin, checked kernel calls: the one crate with `unsafe`.
//!
//! Comes in: plain values and borrowed descriptors. Goes out: `io::Result`. Never here: policy, or a
//! failed safety call that is not returned to the caller.

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
pub mod scheduling;
pub mod seccomp;
pub mod signals;
pub mod sock_diag;
