//! Settings of sessions that an operator can change.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{LoadLimits, ReplayLimits};

/// What happens to boxes when the daemon is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShutdownBoxes {
    #[default]
    Stop,
    /// They run on, and the next daemon adopts them. Boxes that cannot outlive a daemon are stopped.
    Keep,
    /// Only those of persistent sessions run on.
    StopEphemeral,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a session may be idle before it is removed. Zero: unlimited.
    pub session_ttl: Duration,
    pub max_sessions: usize,
    /// Running managed processes, over all sessions.
    pub max_processes: usize,
    /// Bytes of one captured stream that are kept, half of them from its beginning and half from its
    /// end.
    pub capture_bytes: usize,
    /// Time between SIGTERM and SIGKILL when a managed process is stopped.
    pub stop_grace: Duration,
    /// How long a session may be idle before its box is frozen. Zero: never.
    pub freeze_after: Duration,
    /// Overrides `freeze_after` for sessions of these profiles.
    pub freeze_after_by_profile: BTreeMap<String, Duration>,
    /// Interval of measurements of a workspace with a quota while a command runs.
    pub quota_poll_interval: Duration,
    /// Load limits.
    pub load: LoadLimits,
    /// How much output is kept after it was delivered.
    pub replay: ReplayLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_mins(5),
            max_sessions: 1024,
            max_processes: 4096,
            capture_bytes: 1024 * 1024,
            stop_grace: Duration::from_secs(5),
            freeze_after: Duration::ZERO,
            freeze_after_by_profile: BTreeMap::new(),
            quota_poll_interval: Duration::from_millis(250),
            load: LoadLimits::default(),
            replay: ReplayLimits::default(),
        }
    }
}

impl Settings {
    /// `None` for a profile whose boxes are never frozen.
    pub(crate) fn freeze_after(&self, profile: &str) -> Option<Duration> {
        let own = self.freeze_after_by_profile.get(profile).copied();
        Some(own.unwrap_or(self.freeze_after)).filter(|after| !after.is_zero())
    }

    /// `None` if no box is ever frozen.
    pub(crate) fn shortest_freeze_after(&self) -> Option<Duration> {
        let all = self.freeze_after_by_profile.values().copied();
        all.chain([self.freeze_after])
            .filter(|after| !after.is_zero())
            .min()
    }
}
