//! Clients of the daemon and of the programs that it is compared with.

pub(super) mod http;
pub(super) mod pipe;
pub(super) mod python;
pub(super) mod websocket;
