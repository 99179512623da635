//! How many, how long, how much: the numbers an operator may change.

use std::time::Duration;

use crate::LoadLimits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a session may be idle before it is removed. Zero: for ever.
    pub session_ttl: Duration,
    pub max_sessions: usize,
    /// Running managed processes, over all sessions.
    pub max_processes: usize,
    /// Bytes of one stream of one command that are kept, half of them from its beginning and half
    /// from its end.
    pub capture_bytes: usize,
    /// Between the polite end of a managed process and the other one.
    pub stop_grace: Duration,
    /// How much may go on at once.
    pub load: LoadLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_mins(5),
            max_sessions: 1024,
            max_processes: 4096,
            capture_bytes: 1024 * 1024,
            stop_grace: Duration::from_secs(5),
            load: LoadLimits::default(),
        }
    }
}
