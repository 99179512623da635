//! Being the one who talks to a managed process.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::Managed;
use crate::SessionError;
use crate::activity::Attended;

/// A process that can be attached to. Whether its turn comes at once is another matter.
pub struct Attachable {
    managed: Arc<Managed>,
}

impl Attachable {
    pub(crate) fn new(managed: Arc<Managed>) -> Result<Self, SessionError> {
        if managed.is_running() || managed.outlet.has_undelivered() {
            Ok(Self { managed })
        } else {
            Err(managed.not_running())
        }
    }

    /// Waits while another one is attached. An error means that the process was stopped or
    /// replaced meanwhile.
    pub async fn attach(self) -> Result<Attachment, SessionError> {
        let waiting = Arc::clone(&self.managed.attachment).acquire_owned();
        let permit = waiting.await.map_err(|_| self.managed.replaced())?;
        let attended = Attended::new(&self.managed.activity);
        self.managed.activity.frost.thaw().await?;
        self.managed.outlet.set_attached(true);
        Ok(Attachment {
            managed: self.managed,
            _attended: attended,
            _permit: permit,
        })
    }
}

/// The only attachment of a process. Dropping it lets the next one in; the process runs on, and
/// its output is kept.
pub struct Attachment {
    managed: Arc<Managed>,
    _attended: Attended,
    _permit: OwnedSemaphorePermit,
}

impl Attachment {
    /// One line of stdout without its end, however long (up to 64 MiB; a longer one comes in
    /// pieces). `None` after the end and the last line. Cancel-safe.
    pub async fn next_line(&self) -> Option<Vec<u8>> {
        let line = self.managed.outlet.next_line().await?;
        self.touch();
        Some(line)
    }

    /// Gives back a line that could not be delivered; it is the next one to come out.
    pub fn put_back(&self, line: Vec<u8>) {
        self.managed.outlet.put_back(line);
    }

    /// Writes to stdin as it is, waiting while the process does not read. Cancel-safe in this
    /// sense: bytes that were begun are written, and before any others.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), SessionError> {
        self.touch();
        self.managed
            .stdin
            .send(bytes)
            .await
            .map_err(|_| self.managed.not_running())
    }

    /// The session was used just now.
    pub fn touch(&self) {
        self.managed.activity.touch();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.managed.outlet.set_attached(false);
        if self.managed.stdin.is_unfinished()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let managed = Arc::clone(&self.managed);
            runtime.spawn(async move {
                // When the process takes no more input there is nothing left to finish.
                let _ = managed.stdin.finish_message().await;
            });
        }
    }
}
