//! The words spoken with `boxwood-init`, PID 1 of every local box.
//!
//! Comes in: a [`Plan`], then requests. Goes out: events. Never here: sessions, policy, Tokio. The
//! program itself (`main.rs` and below) shares this crate so that both ends agree on every byte.
#![forbid(unsafe_code)]

mod channel;
mod denied;
pub mod file_tools;
mod message;
mod plan;
mod wire;

pub use channel::{Channel, ChannelError, MAX_FDS};
pub use denied::denied_calls;
pub use message::{
    EVERYBODY, Ended, FileFailure, FileReply, FileRequest, FileStat, FromInit, FromMounter,
    FromSpawner, Keep, KillScope, MountOrder, MountWork, Program, Spawn, StdioPlan, ToInit,
    ToSpawner,
};
pub use plan::{
    Identity, InsideInterface, InsideNetwork, MountPlan, MountSource, Outlive, Plan, RootPlan,
    Watched,
};
pub use wire::{
    CHUNK, Carried, Decoder, FIRST_TERMINAL, Facts, Frame, Garbled, JOIN_STREAM, WINDOW,
};

/// Where a box that somebody else starts finds its init and the socket to the daemon: a directory of
/// its own, mounted read-only, out of sight before the first command.
pub const MEETING_PLACE: &str = "/.boxwood";
/// The init program, in that directory.
pub const PROGRAM_NAME: &str = "init";
/// The daemon's socket, in that directory.
pub const SOCKET_NAME: &str = "channel";
/// The program's first argument when it is to be the first process of such a box.
pub const JOIN: &str = "join";
/// The same where the directory is not mounted but open as its standard input.
pub const JOIN_STDIN: &str = "join-stdin";
/// The first argument when it is to run another program in a user namespace: its path, the program
/// and the program's arguments follow.
pub const ENTER: &str = "enter";

/// The static init program.
#[cfg(feature = "embedded")]
pub static PROGRAM: &[u8] = include_bytes!(env!("BOXWOOD_INIT"));
