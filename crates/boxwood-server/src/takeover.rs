//! One daemon follows another without a connection refused in between.
//!
//! The daemon that comes asks the one that is there, over a socket in the state directory that only
//! their user can reach. It gets the listening sockets, says that it has them, and from then on waits
//! for the state directory's lock. The one that is there stops accepting, lets running requests end,
//! lets go of its boxes and ends. Whoever connects meanwhile waits in the sockets' queue.
//!
//! Until the successor has said that it has them, nothing changes for anybody: a successor that
//! fails to start leaves the daemon as it was.

mod ask;
mod door;
mod wire;

pub use ask::TakeoverError;
pub(crate) use ask::{Asked, ask};
pub(crate) use door::{Door, Successor};

/// In the state directory, whose lock says which daemon it belongs to.
const SOCKET: &str = "takeover.sock";

/// Changes when an older daemon could not make sense of what is said, or the other way round.
const VERSION: u32 = 1;
