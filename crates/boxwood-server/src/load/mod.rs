//! Load limits of the daemon: connections, descriptors and memory of requests in flight.
//!
//! Work beyond a limit is refused at once. Limits on sessions and commands are in `boxwood_session`.

mod connections;
mod memory;
mod principal_limit;
mod shares;
mod spare_descriptor;

use std::time::Duration;

use boxwood_session::LoadLimits;
use serde::Deserialize;

pub(crate) use connections::{ConnectionLimits, ConnectionPermit};
pub(crate) use memory::{RequestMemory, charge_response};
pub(crate) use principal_limit::PrincipalLimit;
pub(crate) use spare_descriptor::SpareDescriptor;

/// The `[load]` section. Defaults depend on the machine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadConfig {
    /// Commands and file operations being started, over all sessions.
    pub at_once: Option<usize>,
    /// Concurrent captured commands and file operations per session.
    pub at_once_per_session: Option<usize>,
    /// Length of the wait queue, over all sessions.
    pub waiting: Option<usize>,
    pub waiting_per_session: Option<usize>,
    pub longest_wait_ms: Option<u64>,
    /// Streamed commands, over all sessions.
    pub live: Option<usize>,
    pub live_per_session: Option<usize>,
    pub processes_per_session: Option<usize>,
    /// Memory for request bodies, captured output and responses.
    pub bytes_in_flight_mb: Option<usize>,
    /// Free space that boxes must leave on a host file system they write to.
    pub min_free_mb: Option<u64>,
    /// Default: seven eighths of `http.max_connections`.
    pub connections_per_peer: Option<usize>,
    /// Default: half of `http.max_untrusted_connections`.
    pub untrusted_connections_per_peer: Option<usize>,
}

const MIB: usize = 1024 * 1024;

/// Starting a command takes about a millisecond of CPU time.
const AT_ONCE_PER_CPU: usize = 64;

impl LoadConfig {
    /// The limits with defaults filled in.
    pub fn limits(&self) -> LoadLimits {
        let defaults = LoadLimits::default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let at_once = self
            .at_once
            .unwrap_or_else(|| cpus.saturating_mul(AT_ONCE_PER_CPU).max(128));
        let at_once_per_session = self
            .at_once_per_session
            .unwrap_or_else(|| defaults.at_once_per_session.min(at_once.div_ceil(2)));
        LoadLimits {
            at_once,
            at_once_per_session,
            waiting: self.waiting.unwrap_or(defaults.waiting),
            waiting_per_session: self
                .waiting_per_session
                .unwrap_or(defaults.waiting_per_session),
            longest_wait: self
                .longest_wait_ms
                .map_or(defaults.longest_wait, Duration::from_millis),
            live: self.live.unwrap_or(defaults.live),
            live_per_session: self.live_per_session.unwrap_or(defaults.live_per_session),
            processes_per_session: self
                .processes_per_session
                .unwrap_or(defaults.processes_per_session),
            bytes_in_flight: self
                .bytes_in_flight_mb
                .map_or_else(share_of_memory, |mib| mib.saturating_mul(MIB)),
            min_free_bytes: self.min_free_mb.map(|mib| mib.saturating_mul(MIB as u64)),
        }
    }
}

/// An eighth of the machine's memory, between 256 MiB and 1 GiB.
fn share_of_memory() -> usize {
    let info = rustix::system::sysinfo();
    let bytes = u128::from(info.totalram) * u128::from(info.mem_unit.max(1));
    usize::try_from(bytes / 8)
        .unwrap_or(usize::MAX)
        .clamp(256 * MIB, 1024 * MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_depend_on_the_machine() {
        let limits = LoadConfig::default().limits();
        assert!(limits.at_once >= 128);
        assert!(limits.at_once_per_session <= limits.at_once / 2);
        assert!((256 * MIB..=1024 * MIB).contains(&limits.bytes_in_flight));
    }

    #[test]
    fn configured_values_are_used() {
        let config: LoadConfig =
            toml::from_str("at_once = 3\nlongest_wait_ms = 5\nbytes_in_flight_mb = 7")
                .expect("TOML");
        let limits = config.limits();
        assert_eq!(limits.at_once, 3);
        assert_eq!(limits.at_once_per_session, 2);
        assert_eq!(limits.longest_wait, Duration::from_millis(5));
        assert_eq!(limits.bytes_in_flight, 7 * MIB);
        assert!(toml::from_str::<LoadConfig>("at_onec = 3").is_err());
    }
}
