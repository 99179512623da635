//! The protocol of `boxwood-init`, PID 1 of every local box.
//!
//! The daemon sends a [`Plan`] and then requests; init answers with events. The program itself (`main.rs` and
//! the modules it declares) lives in this crate so that both sides share one definition of every message.
#![forbid(unsafe_code)]

mod denied_syscalls;
pub mod file_tools;
mod protocol;

pub use denied_syscalls::denied_syscalls;
pub use protocol::channel::{Channel, ChannelError, MAX_FDS};
pub use protocol::frame::{
    Attachment, CHUNK, Decoder, FIRST_TERMINAL, Facts, Frame, InvalidFrame, JOIN_STREAM, WINDOW,
};
pub use protocol::message::{
    ALL_PROGRAMS, Ended, FileFailure, FileReply, FileRequest, FileStat, FromInit, FromMountHelper,
    FromSpawner, KillScope, MountRequest, MountWork, Program, Retain, Spawn, StdioPlan, ToInit,
    ToSpawner,
};
pub use protocol::plan::{
    Identity, InsideInterface, InsideNetwork, MountPlan, MountSource, Plan, Recovery, RootPlan,
    Watched,
};
pub use protocol::{BOOTSTRAP_DIR, ENTER, JOIN, JOIN_STDIN, PROGRAM_NAME, SOCKET_NAME};

/// The static init program.
#[cfg(feature = "embedded")]
pub static PROGRAM: &[u8] = include_bytes!(env!("BOXWOOD_INIT"));
