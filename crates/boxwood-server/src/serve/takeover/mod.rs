//! Replaces a running daemon without refusing a connection.
//!
//! The new daemon connects to `takeover.sock` in the state directory, which only the daemon's user can
//! reach. It receives the listening sockets, confirms, and waits for the state lock. The running daemon
//! then stops accepting, completes running requests, detaches its boxes and exits. New connections
//! wait in the sockets' backlog meanwhile.
//!
//! Until the confirmation, the running daemon is unaffected: a successor that fails to start changes
//! nothing.

mod listener;
mod successor;
mod wire;

pub(crate) use listener::{Successor, TakeoverListener};
pub use successor::TakeoverError;
pub(crate) use successor::{Takeover, request};

const SOCKET: &str = "takeover.sock";

/// Increased on incompatible changes of the messages.
const VERSION: u32 = 1;
