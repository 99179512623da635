//! What becomes of boxes when their daemon ends.

use std::time::Duration;

use boxwood_session::ShutdownBoxes;
use serde::{Deserialize, Deserializer, de::Error as _};

/// Longer than anybody leaves a box alone, and short enough for every clock.
const LONGEST_GRACE_SEC: u64 = 366 * 24 * 60 * 60;

/// Boxes that wait for the next daemon.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecoveryConfig {
    /// How long a box waits before it ends by itself; 0 ends boxes with their daemon.
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
    if seconds > LONGEST_GRACE_SEC {
        return Err(D::Error::custom(format!(
            "{seconds} is more than a year ({LONGEST_GRACE_SEC})"
        )));
    }
    Ok(seconds)
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// What a daemon that is told to stop does with its boxes.
    pub boxes: ShutdownBoxes,
}

impl ShutdownConfig {
    /// The word for what may leave a box running.
    pub(super) fn keeps(&self) -> Option<&'static str> {
        match self.boxes {
            ShutdownBoxes::Stop => None,
            ShutdownBoxes::Keep => Some("keep"),
            ShutdownBoxes::StopEphemeral => Some("stop_ephemeral"),
        }
    }
}
