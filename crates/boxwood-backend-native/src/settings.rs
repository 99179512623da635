//! What an operator may set about native boxes.

use std::path::PathBuf;

use crate::net::NetworkSettings;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Tells this daemon's boxes from another's.
    pub state_dir: PathBuf,
    /// For sockets and other things that do not outlive a boot.
    pub run_dir: PathBuf,
    /// How many blank boxes wait for their plan. Each costs a few dozen kilobytes.
    pub pool_size: usize,
    pub network: NetworkSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/boxwood"),
            run_dir: PathBuf::from("/run/boxwood"),
            pool_size: 4,
            network: NetworkSettings::default(),
        }
    }
}
