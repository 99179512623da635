//! Settings of boxes on this machine.

use std::path::PathBuf;
use std::time::Duration;

use crate::network::NetworkSettings;

/// Long enough for an operator to restart the daemon, short enough that an abandoned host frees its memory
/// the same day.
pub const DEFAULT_GRACE: Duration = Duration::from_hours(1);

/// What kind of process creates boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The only daemon on its state directory. The next daemon cleans up after it.
    Daemon,
    /// One command (`boxwood run`); several run side by side.
    Single,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub kind: Kind,
    /// Identifies the daemon: its boxes belong to this directory.
    pub state_dir: PathBuf,
    /// For sockets and other files that do not survive a reboot.
    pub run_dir: PathBuf,
    pub network: NetworkSettings,
    /// How long boxes wait for the next daemon after this one exits. Unused with `Kind::Single`.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kind: Kind::Daemon,
            state_dir: PathBuf::from("/var/lib/boxwood"),
            run_dir: PathBuf::from("/run/boxwood"),
            network: NetworkSettings::default(),
            grace: DEFAULT_GRACE,
        }
    }
}
