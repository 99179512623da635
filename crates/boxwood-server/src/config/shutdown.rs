//! Settings for boxes at shutdown and after a restart.

use std::time::Duration;

use boxwood_session::ShutdownBoxes;
use serde::{Deserialize, Deserializer, de::Error as _};

/// One year. Longer times could overflow timestamp arithmetic.
const MAX_GRACE_SEC: u64 = 366 * 24 * 60 * 60;

/// Boxes that outlive their daemon.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecoveryConfig {
    /// Time a box waits for the next daemon before it exits; 0: boxes exit with their daemon.
    #[serde(deserialize_with = "grace")]
    pub grace_sec: u64,
}

impl RecoveryConfig {
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_sec)
    }
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self { grace_sec: 3600 }
    }
}

fn grace<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    let seconds = u64::deserialize(input)?;
    if seconds > MAX_GRACE_SEC {
        return Err(D::Error::custom(format!(
            "{seconds} is more than a year ({MAX_GRACE_SEC})"
        )));
    }
    Ok(seconds)
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// What happens to boxes when the daemon stops.
    pub boxes: ShutdownBoxes,
}
