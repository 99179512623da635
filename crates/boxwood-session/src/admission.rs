//! How much may go on at once, and who is next when more is wanted.
//!
//! Comes in: that a session wants to work. Goes out: a turn, a seat, bytes; or a refusal that says
//! which bound was met. Never here: what the work is. When a bound is met the answer comes at once or
//! after a bounded wait in a bounded line, so load never piles up inside the daemon.
//!
//! - [`Turns`]: commands and file operations, in a fair order. Held by captured commands to their end
//!   and by everything else while it is being started.
//! - [`Seats`]: what lasts. Streamed commands and managed processes.
//! - [`Budget`]: bytes in memory.

mod budget;
mod fair;
mod seats;
mod turns;

use std::sync::Arc;
use std::time::Duration;

pub use budget::{Budget, Held};
pub(crate) use fair::Key;
pub(crate) use seats::{NoSeat, Seat, Seats};
pub(crate) use turns::{Turn, Turns};

use crate::SessionError;

/// The bounds on what goes on at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadLimits {
    /// Commands and file operations that have just begun, over all sessions. Those that run for
    /// longer than half a second stop counting here.
    pub at_once: usize,
    /// Commands whose output is captured, and file operations, in one session.
    pub at_once_per_session: usize,
    /// Waiting for one of these, over all sessions.
    pub waiting: usize,
    pub waiting_per_session: usize,
    pub longest_wait: Duration,
    /// Streamed commands that run, over all sessions.
    pub live: usize,
    pub live_per_session: usize,
    pub processes_per_session: usize,
    /// Bodies being read, output being kept, answers being sent.
    pub bytes_in_flight: usize,
    /// What boxes leave free of a file system of the host that they write to. `None`: 256 MiB, or a
    /// hundredth of a small one.
    pub min_free_bytes: Option<u64>,
}

const MIB: usize = 1024 * 1024;

impl Default for LoadLimits {
    fn default() -> Self {
        Self {
            at_once: 256,
            at_once_per_session: 64,
            waiting: 4096,
            waiting_per_session: 512,
            longest_wait: Duration::from_secs(10),
            live: 4096,
            live_per_session: 256,
            processes_per_session: 256,
            bytes_in_flight: 512 * MIB,
            min_free_bytes: None,
        }
    }
}

/// Which bound was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    #[error("the session is busy: {waiting} commands and file operations wait in it already")]
    Session { waiting: usize },
    #[error("the daemon is busy: {waiting} commands and file operations wait already")]
    Daemon { waiting: usize },
    #[error("the session is busy: its turn did not come within {ms} ms")]
    Waited { ms: u64 },
    #[error("there are already {limit} streamed commands, which is the most this daemon runs")]
    Live { limit: usize },
    #[error("the session already has {limit} streamed commands, which is the most it may have")]
    SessionLive { limit: usize },
    #[error("the session already has {limit} managed processes, which is the most it may have")]
    SessionProcesses { limit: usize },
    #[error("the daemon already holds {limit} bytes of requests and answers")]
    Bytes { limit: usize },
}

impl Busy {
    /// What the caller can do next.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Session { .. }
            | Self::Daemon { .. }
            | Self::Waited { .. }
            | Self::Bytes { .. } => "ask again in a moment, or ask for less at the same time",
            Self::Live { .. } | Self::SessionLive { .. } => {
                "end a streamed command that is no longer needed"
            }
            Self::SessionProcesses { .. } => "stop a managed process that is no longer needed",
        }
    }
}

/// What is going on, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Captured commands, and starts and file operations.
    pub under_way: usize,
    pub waiting: usize,
    pub live: usize,
    pub bytes_in_flight: usize,
    /// Since the daemon started.
    pub refused: u64,
}

/// Every bound of one daemon.
pub(crate) struct Gate {
    turns: Arc<Turns>,
    live: Seats,
    pub(crate) processes: Seats,
    pub(crate) budget: Budget,
}

impl Gate {
    pub(crate) fn new(limits: &LoadLimits, max_processes: usize) -> Self {
        Self {
            turns: Turns::new(limits.clone()),
            live: Seats::new(limits.live, limits.live_per_session),
            processes: Seats::new(max_processes, limits.processes_per_session),
            budget: Budget::new(limits.bytes_in_flight),
        }
    }

    /// To run a command or a file operation.
    pub(crate) async fn turn(&self, session: Key) -> Result<Turn, SessionError> {
        self.budget.check()?;
        self.turns.take(session).await
    }

    /// For a streamed command, until it ends.
    pub(crate) fn live(&self, session: Key) -> Result<Seat, SessionError> {
        self.live.take(session).map_err(|no_seat| {
            self.turns.refuse(match no_seat {
                NoSeat::Anywhere { limit } => Busy::Live { limit },
                NoSeat::InSession { limit } => Busy::SessionLive { limit },
            })
        })
    }

    /// For one that runs already.
    pub(crate) fn adopted_live(&self, session: Key) -> Seat {
        self.live.take_anyway(session)
    }

    /// For a managed process, until it ends.
    pub(crate) fn process(&self, session: Key) -> Result<Seat, SessionError> {
        self.processes
            .take(session)
            .map_err(|no_seat| match no_seat {
                NoSeat::Anywhere { limit } => SessionError::TooManyProcesses { limit },
                NoSeat::InSession { limit } => self.turns.refuse(Busy::SessionProcesses { limit }),
            })
    }

    /// For one that runs already.
    pub(crate) fn adopted_process(&self, session: Key) -> Seat {
        self.processes.take_anyway(session)
    }

    pub(crate) fn load(&self) -> Load {
        let (under_way, waiting) = self.turns.count();
        Load {
            under_way,
            waiting,
            live: self.live.taken(),
            bytes_in_flight: self.budget.used(),
            refused: self.turns.refused() + self.budget.refused(),
        }
    }
}
