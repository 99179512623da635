//! Boxes of a daemon that is reached over its API.
//!
//! Comes in: what the tools want of boxes. Goes out: requests, and their answers in the tools' words.
//! A call to a runtime that is not there is refused at once. One during which the connection breaks
//! waits for the next connection, but never longer than its own deadline; what may be asked twice is
//! asked again, and a command is gone on with where it was. Never here: judgement, and what a tool is.

mod ask;
mod boxes;
mod command;
mod failure;
mod line;

use std::time::Duration;

use boxwood_client::Client;

use crate::connector::Connector;
use line::Reach;

/// How long calls may take, whatever happens to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Questions about the runtime.
    pub question: Duration,
    /// Work on files and skills.
    pub files: Duration,
    /// For a box to be made; its image may have to be fetched.
    pub start: Duration,
    /// For a command of which nobody says how long it may run.
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
    reach: Reach,
    deadlines: Deadlines,
}

impl Remote {
    /// Over a client that is always used, whether its daemon is there or not.
    pub fn connect(client: Client) -> Self {
        Self {
            reach: Reach::Always(Box::new(client)),
            deadlines: Deadlines::default(),
        }
    }

    /// Over a connection that is kept.
    pub fn over(connector: Connector) -> Self {
        Self {
            reach: Reach::Kept(connector),
            deadlines: Deadlines::default(),
        }
    }

    #[must_use]
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self }
    }
}
