//! Boxes of a daemon that is reached over its API.
//!
//! A call fails at once if the daemon is not available. If the connection is lost during a call, the call waits for the next
//! connection until its deadline: idempotent requests are repeated, and a running command is resumed.

mod boxes;
mod command;
mod connection;
mod failure;
mod request;

use std::time::Duration;

use crate::connector::Connector;

/// How long calls may take, whatever happens to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Questions about the runtime.
    pub question: Duration,
    /// Work on files and skills.
    pub files: Duration,
    /// For a box to be made; its image may have to be fetched.
    pub start: Duration,
    /// For a command without a timeout of its own.
    pub command: Duration,
    /// For the news of a command's end to arrive after its own timeout.
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

/// The boxes of a daemon elsewhere. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    connector: Connector,
    deadlines: Deadlines,
}

impl Remote {
    pub(crate) fn new(connector: Connector) -> Self {
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
