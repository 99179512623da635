//! What a daemon finds of the one before it.
//!
//! Comes in: the state directory and the backends. Goes out: sessions, the old ones among them, and a
//! report of what became of each. Nothing here has to be written for a daemon to start: a full disk
//! is when boxes are needed most.

use std::fmt;

use boxwood_ledger::{Ledger, OpenError, Opened};
use boxwood_session::{Backends, Sessions};

use crate::config::Config;
use crate::serve::settings;

/// How many boxes of an earlier daemon there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Sessions that go on.
    pub adopted: usize,
    /// Sessions whose boxes died while no daemon ran.
    pub lost: usize,
    /// The ledger was missing, damaged or older than what runs, and was written anew.
    pub rebuilt: bool,
}

impl Recovery {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = |count| if count == 1 { "session" } else { "sessions" };
        write!(f, "{} {} adopted", self.adopted, sessions(self.adopted))?;
        if self.lost > 0 {
            write!(f, ", {} {} lost", self.lost, sessions(self.lost))?;
        }
        if self.rebuilt {
            f.write_str(", the ledger rebuilt from what runs")?;
        }
        Ok(())
    }
}

pub(crate) async fn recover(
    config: &Config,
    backends: Backends,
) -> Result<(Sessions, Recovery), OpenError> {
    let path = config.state_dir.join("ledger.db");
    let (ledger, opened) = Ledger::open(&path).await?;
    match opened {
        Opened::Fresh | Opened::Known => {}
        Opened::Damaged { moved_to, why } => tracing::warn!(
            why,
            moved_to = %moved_to.display(),
            "the ledger could not be read and was set aside; it is rebuilt from what runs"
        ),
        Opened::InMemory { why } => tracing::warn!(
            error = %why,
            path = %path.display(),
            "the ledger is kept in memory: what runs goes on, and no new session can be made until \
             there is room"
        ),
    }
    let (sessions, found) = Sessions::recover(backends, settings(config), ledger).await;
    for lost in &found.lost {
        tracing::warn!(
            session = %lost.session,
            incarnation = lost.incarnation,
            why = lost.why,
            "a session of the daemon before was lost"
        );
    }
    let recovery = Recovery {
        adopted: found.adopted,
        lost: found.lost.len(),
        rebuilt: found.rebuilt,
    };
    if !recovery.is_empty() {
        tracing::info!("{recovery}");
    }
    Ok((sessions, recovery))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_counts_in_words() {
        let mut recovery = Recovery {
            adopted: 1,
            ..Recovery::default()
        };
        assert_eq!(recovery.to_string(), "1 session adopted");
        recovery.lost = 2;
        recovery.rebuilt = true;
        let text = "1 session adopted, 2 sessions lost, the ledger rebuilt from what runs";
        assert_eq!(recovery.to_string(), text);
    }
}
