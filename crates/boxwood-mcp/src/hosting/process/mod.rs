//! Connections to the processes of one server, and requests to them.

pub(crate) mod call;
pub(crate) mod client_processes;
pub(crate) mod handshake;
pub(crate) mod server;
pub(crate) mod tools;
