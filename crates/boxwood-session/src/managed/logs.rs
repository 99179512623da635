//! Recent output of a process, read from its journals.

use boxwood_api::ProcessLogs;

use super::Managed;
use super::preview::preview;
use crate::program::OutputQueue;

/// Shown of each stream. Of stderr no more is kept.
pub(super) const LOG_BYTES: u64 = 128 * 1024;

impl Managed {
    pub(crate) fn logs(&self) -> ProcessLogs {
        ProcessLogs {
            stdout: self.recent(&self.program.stdout),
            stderr: self.recent(&self.program.stderr),
        }
    }

    pub(super) fn stderr_preview(&self) -> String {
        preview(&self.recent(&self.program.stderr))
    }

    fn recent(&self, output: &OutputQueue) -> String {
        let bytes = output.journal().last(LOG_BYTES).unwrap_or_else(|error| {
            tracing::warn!(%error, process = %self.id(), "failed to read the logs of a process");
            Vec::new()
        });
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
