//! The protocol with a server in a box: lines of JSON, of which only what must be is understood.
//!
//! Comes in: the pipes of a process, and calls. Goes out: answers with everything the server wrote, known
//! to us or not. Never here: HTTP, which server it is, and what a tool's arguments mean.

mod audience;
mod burden;
mod connection;
mod error;
mod framing;
mod greeting;
mod inbound;
mod lookalike;
mod message;
mod object;
mod overlong;
mod pending;
mod protocol_log;
mod queue;
mod reader;
mod shared;
mod usage;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use audience::{Audience, Principal};
pub use burden::Burden;
pub use connection::MAX_MESSAGE_BYTES;
pub(crate) use connection::{Ask, Connection, WireLimits};
pub(crate) use error::{CallError, Ended};
pub(crate) use greeting::{Era, GreetAs, GreetError, Greeting, discover, greet, ping};
pub(crate) use inbound::{Heard, Hears, Inbound};
pub(crate) use message::{BadMessage, Kind, Message, Payload, is_news};
pub(crate) use object::Object;
pub(crate) use protocol_log::ProtocolLog;
