//! JSON-RPC over the standard input and output of an MCP server process: framing, handshake, calls,
//! cancellation and notifications.
//!
//! Messages keep all fields of the server, including unknown ones.

mod ambiguous_keys;
mod audience;
mod connection;
mod connection_state;
mod error;
mod framing;
mod handshake;
mod inbound;
mod message;
mod object;
mod pending;
mod protocol_log;
mod reader;
mod usage;
mod write_queue;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use audience::{Audience, Principal};
pub use connection::MAX_MESSAGE_BYTES;
pub(crate) use connection::{CallOptions, Connection, WireLimits};
pub(crate) use connection_state::cancellation;
pub(crate) use error::{CallError, CloseReason};
pub(crate) use handshake::{
    ClientIdentity, Handshake, HandshakeError, Protocol, discover, handshake, ping,
};
pub(crate) use inbound::{Inbound, InboundEvent, InboundFilter};
pub use message::BodyPermit;
pub(crate) use message::{BadMessage, Kind, Message, is_notification};
pub(crate) use object::{Object, raw};
pub(crate) use protocol_log::ProtocolLog;
