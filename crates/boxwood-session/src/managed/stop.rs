//! The end of a managed process: politely first, then not.

use std::time::Duration;

use boxwood_backend::{ControlError, Scope};

use super::Managed;
use crate::facts::Fact;
use crate::leash::{Killed, SIGTERM, kill_tree};

impl Managed {
    /// Closes stdin, asks the tree to end, and kills what is left of it when the program has ended
    /// or the grace is over. Idempotent. Tells whether everything is really gone.
    pub(crate) async fn terminate(&self, grace: Duration) -> Killed {
        if !self.asked.send_replace(true) && self.is_running() {
            self.facts.add(&Fact::Asked);
        }
        self.abandon();
        self.stdin.close().await;
        if self.is_running() {
            match self.control.signal(SIGTERM, Scope::Tree).await {
                Ok(()) | Err(ControlError::Ended | ControlError::Gone) => {}
                Err(error) => {
                    tracing::warn!(%error, process = %self.id(), "SIGTERM could not be sent");
                }
            }
            let _ = tokio::time::timeout(grace, self.control.wait()).await;
        }
        // Also after a polite end: it may have left children behind.
        let killed = kill_tree(&*self.control).await;
        if matches!(killed, Killed::Dead) {
            // The watcher needs a moment for the last words; whoever asks next finds them.
            let _ = self.ended.subscribe().wait_for(Option::is_some).await;
        }
        killed
    }

    /// Nobody new can reach it. Those who wait for their turn are told; the one attached gets the
    /// rest of the output.
    pub(crate) fn abandon(&self) {
        self.attachment.close();
        self.outlet.abandon();
    }
}
