//! Recovers the sessions of the previous daemon.
//!
//! Nothing needs to be written for this, so that the daemon can start on a full disk.

use std::fmt;

use boxwood_api::with_causes;
use boxwood_ledger::{Ledger, OpenError, Opened};
use boxwood_session::{Backends, Sessions};

use crate::config::Config;
use crate::serve::settings;

/// The result of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Sessions that continue.
    pub adopted: usize,
    /// Sessions whose boxes exited while no daemon was running.
    pub lost: usize,
    /// The ledger was missing, damaged or outdated, and was rebuilt.
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
            f.write_str(", ledger rebuilt from the running boxes")?;
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
            "the ledger is damaged and was moved aside; rebuilding it from running boxes"
        ),
        Opened::InMemory { why } => tracing::warn!(
            error = %with_causes(&why),
            path = %path.display(),
            "the ledger is kept in memory: existing sessions continue, and new ones cannot be created \
             until there is disk space"
        ),
    }
    let (sessions, found) = Sessions::recover(backends, settings(config), ledger).await;
    for lost in &found.lost {
        tracing::warn!(
            session = %lost.session,
            incarnation = lost.incarnation,
            why = lost.why,
            "a session of the previous daemon was lost"
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
    fn the_recovery_report_has_singular_and_plural_forms() {
        let mut recovery = Recovery {
            adopted: 1,
            ..Recovery::default()
        };
        assert_eq!(recovery.to_string(), "1 session adopted");
        recovery.lost = 2;
        recovery.rebuilt = true;
        let text = "1 session adopted, 2 sessions lost, ledger rebuilt from the running boxes";
        assert_eq!(recovery.to_string(), text);
    }
}
