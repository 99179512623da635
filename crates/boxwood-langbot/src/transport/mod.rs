//! Carries messages and responses: framing, assembly, size limits, and stdio.

mod connection;
mod json_scanner;
mod line_framing;
mod message_assembler;
mod response;
mod stdio;
mod truncate;

pub use connection::Connection;
pub(crate) use connection::Request;
pub use message_assembler::{Assembled, MessageAssembler};
pub use stdio::serve_stdio;
