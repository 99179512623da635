//! The words spoken with `boxwood-init`, PID 1 of every local box.
//!
//! Comes in: a [`Plan`], then requests. Goes out: events. Never here: sessions, policy, Tokio. The
//! program itself (`main.rs` and below) shares this crate so that both ends agree on every byte.
#![forbid(unsafe_code)]

mod channel;
mod message;
mod plan;

pub use channel::{Channel, ChannelError, MAX_FDS};
pub use message::{
    FileFailure, FileReply, FileRequest, FileStat, FromInit, FromMounter, FromSpawner, KillScope,
    MountOrder, Program, Spawn, StdioPlan, ToInit, ToSpawner,
};
pub use plan::{Identity, InsideInterface, InsideNetwork, MountPlan, MountSource, Plan, RootPlan};

/// The static init program.
#[cfg(feature = "embedded")]
pub static PROGRAM: &[u8] = include_bytes!(env!("BOXWOOD_INIT"));
