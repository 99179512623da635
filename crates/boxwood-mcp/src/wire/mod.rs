//! JSON-RPC over the standard input and output of an MCP server process: framing, handshake, calls,
//! cancellation and notifications.
//!
//! Messages keep all fields of the server, including unknown ones.

mod audience;
mod connection;
mod error;
mod handshake;
mod inbound;
mod message;
mod protocol_log;

#[cfg(test)]
mod tests;

pub(crate) use audience::{Audience, Principal};
pub use connection::MAX_MESSAGE_BYTES;
pub(crate) use connection::state::cancellation;
pub(crate) use connection::{CallOptions, Connection, WireLimits};
pub(crate) use error::{CallError, CloseReason};
pub(crate) use handshake::{
    ClientIdentity, Handshake, HandshakeError, Protocol, discover, handshake, ping,
};
pub(crate) use inbound::{Inbound, InboundEvent, InboundFilter};
pub use message::BodyPermit;
pub(crate) use message::object::{Object, raw};
pub(crate) use message::{BadMessage, Kind, Message, is_notification};
pub(crate) use protocol_log::ProtocolLog;
