//! Stops a managed process: SIGTERM, then SIGKILL.

use std::time::Duration;

use boxwood_api::with_causes;
use boxwood_backend::{ControlError, Scope};

use super::Managed;
use crate::program::{Killed, SIGTERM, kill_tree};

impl Managed {
    /// Closes stdin, sends SIGTERM to the process and its children, and kills them when the process has
    /// exited or the grace period is over. Idempotent.
    pub(crate) async fn terminate(&self, grace: Duration) -> Killed {
        if self.is_running() {
            self.program.request_stop();
        }
        self.abandon();
        self.program.stdin.close().await;
        if self.is_running() {
            match self.program.control.signal(SIGTERM, Scope::Tree).await {
                Ok(()) | Err(ControlError::Ended | ControlError::Gone) => {}
                Err(error) => {
                    tracing::warn!(error = %with_causes(&error), process = %self.id(), "failed to send SIGTERM to a process");
                }
            }
            let _ = tokio::time::timeout(grace, self.program.control.wait()).await;
        }
        // Also after an exit: children may be left.
        let killed = kill_tree(&*self.program.control).await;
        if matches!(killed, Killed::Dead) {
            // The caller finds the last output.
            let _ = self.end.subscribe().wait_for(Option::is_some).await;
        }
        killed
    }

    /// Clients that wait to be attached get an error; the attached one gets the rest of the output.
    pub(crate) fn abandon(&self) {
        self.attachment.close();
        self.program.stdout.abandon();
    }
}
