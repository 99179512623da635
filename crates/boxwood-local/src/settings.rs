//! What an operator may set about boxes on this machine.

use std::path::PathBuf;
use std::time::Duration;

use crate::net::NetworkSettings;

/// Long enough for a person to come and look, short enough that a host that lost its daemon for good
/// has its memory back the same day.
pub const DEFAULT_GRACE: Duration = Duration::from_hours(1);

/// How long this process means to make boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Alone on its state directory, and its successor clears up after it.
    Daemon,
    /// One command, beside others.
    Single,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub kind: Kind,
    /// Tells this daemon's boxes from another's.
    pub state_dir: PathBuf,
    /// For sockets and other things that do not outlive a boot.
    pub run_dir: PathBuf,
    pub network: NetworkSettings,
    /// How long a box waits for the next daemon when this one goes away. `Kind::Single` leaves none.
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
