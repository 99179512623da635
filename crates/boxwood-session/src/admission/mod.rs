//! Load limits: how much work is started, queued or refused.
//!
//! - [`StartPermits`]: commands and file operations, with a fair queue. Held by captured commands until
//!   they end, and by everything else while it is being started.
//! - [`RunPermits`]: running streamed commands and managed processes.
//! - [`Budget`]: bytes in memory.

mod budget;
mod fair_queue;
mod run_permits;
mod start_permits;

use std::sync::Arc;
use std::time::Duration;

pub use budget::{Budget, Held};
pub(crate) use fair_queue::Key;
pub(crate) use run_permits::{NoPermit, RunPermit, RunPermits};
pub(crate) use start_permits::{StartPermit, StartPermits};

use crate::{Result, SessionError};

/// Limits of one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadLimits {
    /// Commands and file operations that have just been started, in all sessions. After half a second
    /// they do not count any more.
    pub at_once: usize,
    /// Captured commands and file operations in one session.
    pub at_once_per_session: usize,
    /// Queued requests of all sessions.
    pub waiting: usize,
    pub waiting_per_session: usize,
    pub longest_wait: Duration,
    /// Streamed commands in all sessions.
    pub live: usize,
    pub live_per_session: usize,
    pub processes_per_session: usize,
    /// Bodies that are read, output that is kept, responses that are sent.
    pub bytes_in_flight: usize,
    /// Free space that boxes leave on a file system of the host. `None`: 256 MiB, or 1 % of a small
    /// file system.
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

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    #[error("the session is busy: {waiting} commands and file operations are already queued")]
    Session { waiting: usize },
    #[error("the daemon is busy: {waiting} commands and file operations are already queued")]
    Daemon { waiting: usize },
    #[error("the session or the daemon is busy: the request waited {ms} ms in the queue")]
    Waited { ms: u64 },
    #[error("there are already {limit} streamed commands, which is the most this daemon runs")]
    Live { limit: usize },
    #[error("the session already has {limit} streamed commands, which is the most it may have")]
    SessionLive { limit: usize },
    #[error("the session already has {limit} managed processes, which is the most it may have")]
    SessionProcesses { limit: usize },
    #[error("the daemon already holds {limit} bytes of requests and responses")]
    Bytes { limit: usize },
}

impl Busy {
    /// What the caller can do next.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Session { .. }
            | Self::Daemon { .. }
            | Self::Waited { .. }
            | Self::Bytes { .. } => "retry later, or send fewer requests at a time",
            Self::Live { .. } | Self::SessionLive { .. } => {
                "end a streamed command that is no longer needed"
            }
            Self::SessionProcesses { .. } => "stop a managed process that is no longer needed",
        }
    }
}

/// Current load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Captured commands, file operations, and starts in progress.
    pub under_way: usize,
    pub waiting: usize,
    pub live: usize,
    pub bytes_in_flight: usize,
    /// Since the daemon started.
    pub refused: u64,
}

/// All limits of one daemon.
pub(crate) struct Gate {
    start_permits: Arc<StartPermits>,
    pub(crate) streamed: RunPermits,
    pub(crate) processes: RunPermits,
    pub(crate) budget: Budget,
}

impl Gate {
    pub(crate) fn new(limits: &LoadLimits, max_processes: usize) -> Self {
        Self {
            start_permits: StartPermits::new(limits.clone()),
            streamed: RunPermits::new(limits.live, limits.live_per_session),
            processes: RunPermits::new(max_processes, limits.processes_per_session),
            budget: Budget::new(limits.bytes_in_flight),
        }
    }

    /// Permit for a command or a file operation.
    pub(crate) async fn start_permit(&self, session: Key) -> Result<StartPermit> {
        self.budget.check()?;
        self.start_permits.take(session).await
    }

    /// Permit for a streamed command, until it ends.
    pub(crate) fn streamed(&self, session: Key) -> Result<RunPermit> {
        self.streamed.take(session).map_err(|no_permit| {
            self.start_permits.refuse(match no_permit {
                NoPermit::Anywhere(limit) => Busy::Live { limit },
                NoPermit::InSession(limit) => Busy::SessionLive { limit },
            })
        })
    }

    /// Permit for a managed process, until it ends.
    pub(crate) fn process(&self, session: Key) -> Result<RunPermit> {
        self.processes
            .take(session)
            .map_err(|no_permit| match no_permit {
                NoPermit::Anywhere(limit) => SessionError::TooManyProcesses { limit },
                NoPermit::InSession(limit) => {
                    self.start_permits.refuse(Busy::SessionProcesses { limit })
                }
            })
    }

    pub(crate) fn load(&self) -> Load {
        let (under_way, waiting) = self.start_permits.count();
        Load {
            under_way,
            waiting,
            live: self.streamed.taken(),
            bytes_in_flight: self.budget.used(),
            refused: self.start_permits.refused() + self.budget.refused(),
        }
    }
}
