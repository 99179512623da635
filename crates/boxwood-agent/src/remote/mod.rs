//! Boxes of a daemon that is reached over its API.
//!
//! A call fails at once if the daemon is not available. If the connection is lost during a call, the call waits for the next
//! connection until its deadline: idempotent requests are repeated, and a running command is resumed.

mod boxes;
mod command;
mod connector;
mod endpoint;
mod failure;
mod monitor;
mod request;

use std::time::Duration;

pub use connector::{Availability, Connector, Outage};
pub use endpoint::runtime_endpoint;

/// Timeouts of calls, including waiting for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Requests about the runtime.
    pub question: Duration,
    /// Requests about files and skills.
    pub files: Duration,
    /// Creating a box; its image may have to be pulled.
    pub start: Duration,
    /// Commands without a timeout.
    pub command: Duration,
    /// How long after its own timeout the end of a command must be reported.
    pub slack: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            question: Duration::from_secs(15),
            files: Duration::from_mins(1),
            start: Duration::from_secs(330),
            command: Duration::from_hours(1),
            slack: Duration::from_secs(15),
        }
    }
}

/// The boxes of another daemon. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    connector: Connector,
    deadlines: Deadlines,
}

impl Remote {
    fn new(connector: Connector) -> Self {
        Self {
            connector,
            deadlines: Deadlines::default(),
        }
    }

    #[must_use]
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self }
    }
}
