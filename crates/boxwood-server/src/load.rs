//! How much the daemon takes on.
//!
//! Comes in: connections, bodies, answers. Goes out: that they may come in, or that they may not, at
//! once. Never here: which session is next, which is `boxwood_session`'s to say.
//!
//! - [`Doors`]: how many connections there may be, in all and from one peer.
//! - [`Reserve`]: what to do when the kernel has no descriptors left.
//! - [`Shares`]: how much of those bytes is one principal's.
//! - [`Weight`]: bytes that a request and its answer keep in memory.

mod doors;
mod reserve;
mod shares;
mod weight;

use std::time::Duration;

use boxwood_session::LoadLimits;
use serde::Deserialize;

pub(crate) use doors::{Doors, Seated};
pub(crate) use reserve::Reserve;
pub(crate) use shares::Shares;
pub(crate) use weight::{Weight, weigh};

/// How much may go on at once. What is left out follows from the machine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadConfig {
    /// Commands and file operations that have just begun, over all sessions.
    pub at_once: Option<usize>,
    /// Commands whose output is captured, and file operations, in one session.
    pub at_once_per_session: Option<usize>,
    /// How many may wait for that, over all sessions.
    pub waiting: Option<usize>,
    pub waiting_per_session: Option<usize>,
    pub longest_wait_ms: Option<u64>,
    /// Streamed commands, over all sessions.
    pub live: Option<usize>,
    pub live_per_session: Option<usize>,
    pub processes_per_session: Option<usize>,
    /// Bodies being read, output being kept, answers being sent.
    pub bytes_in_flight_mb: Option<usize>,
    /// What boxes leave free of a file system of the host that they write to.
    pub min_free_mb: Option<u64>,
    /// Of `http.max_connections`; all but an eighth of them when left out.
    pub connections_per_peer: Option<usize>,
    /// Of `http.max_untrusted_connections`; half of them when left out.
    pub untrusted_connections_per_peer: Option<usize>,
}

const MIB: usize = 1024 * 1024;

/// For each processor. A command that begins costs about a millisecond of one.
const AT_ONCE_PER_CPU: usize = 64;

impl LoadConfig {
    /// With what is left out filled in.
    pub fn limits(&self) -> LoadLimits {
        let usual = LoadLimits::default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let at_once = self
            .at_once
            .unwrap_or_else(|| cpus.saturating_mul(AT_ONCE_PER_CPU).max(128));
        let at_once_per_session = self
            .at_once_per_session
            .unwrap_or_else(|| usual.at_once_per_session.min(at_once.div_ceil(2)));
        LoadLimits {
            at_once,
            at_once_per_session,
            waiting: self.waiting.unwrap_or(usual.waiting),
            waiting_per_session: self
                .waiting_per_session
                .unwrap_or(usual.waiting_per_session),
            longest_wait: self
                .longest_wait_ms
                .map_or(usual.longest_wait, Duration::from_millis),
            live: self.live.unwrap_or(usual.live),
            live_per_session: self.live_per_session.unwrap_or(usual.live_per_session),
            processes_per_session: self
                .processes_per_session
                .unwrap_or(usual.processes_per_session),
            bytes_in_flight: self
                .bytes_in_flight_mb
                .map_or_else(share_of_memory, |mib| mib.saturating_mul(MIB)),
            min_free_bytes: self.min_free_mb.map(|mib| mib.saturating_mul(MIB as u64)),
        }
    }
}

/// An eighth of the machine's memory, within reason.
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
    fn what_is_left_out_follows_from_the_machine() {
        let limits = LoadConfig::default().limits();
        assert!(limits.at_once >= 128);
        assert!(limits.at_once_per_session <= limits.at_once / 2);
        assert!((256 * MIB..=1024 * MIB).contains(&limits.bytes_in_flight));
    }

    #[test]
    fn what_is_given_is_taken() {
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
