//! Execs: one command in a session, captured or streamed.

pub(crate) mod capture;
pub(crate) mod captured;
mod captured_streams;
mod operations;
pub(crate) mod streamed;
pub(crate) mod table;
