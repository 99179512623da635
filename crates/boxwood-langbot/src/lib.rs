//! LangBot Box's action RPC, in the wire formats of SDK 0.4 and 0.7.
//!
//! Input: messages of LangBot's published clients. Output: the responses those clients expect. This
//! crate translates actions to calls of sessions, policy and skills; listeners and sockets stay in
//! `boxwood-server`.
#![forbid(unsafe_code)]

mod box_config;
mod client;
mod environment;
mod error;
mod langbot;
mod models;
mod params;
mod results;
mod session_calls;
mod transport;
mod uploads;
mod v0_4;
mod v0_7;
pub mod workspace;

pub use client::{Client, Unauthorized};
pub use environment::Environment;
pub use error::ActionError;
pub use langbot::{GatherFacts, LangBot, RecordExec, Services, Settings, Setup};
pub use transport::{Assembled, Connection, MessageAssembler, serve_stdio};
pub use v0_7::{CurrentPlacement, InstanceError, RelayAccess, RelayRefusal};

/// The version of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireFormat {
    /// `langbot-plugin` 0.4.
    V0_4,
    /// `langbot-plugin` 0.7, with workspaces and placements.
    V0_7,
}
