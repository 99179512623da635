//! What an operator may set about boxes on this machine.

use std::path::PathBuf;

use crate::net::NetworkSettings;

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
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kind: Kind::Daemon,
            state_dir: PathBuf::from("/var/lib/boxwood"),
            run_dir: PathBuf::from("/run/boxwood"),
            network: NetworkSettings::default(),
        }
    }
}
