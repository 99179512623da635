//! Being the one who talks to a managed process.

use std::pin::Pin;
use std::sync::Arc;

use boxwood_api::ProcessExit;
use bytes::Bytes;
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::Managed;
use crate::SessionError;
use crate::activity::Attended;
use crate::replay::Since;

/// A process that can be attached to. Whether its turn comes at once is another matter: they come in the
/// order in which these were made.
pub struct Attachable {
    managed: Arc<Managed>,
    place: Place,
}

/// In the queue of those who want to be attached.
enum Place {
    First(OwnedSemaphorePermit),
    Behind(Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>),
}

impl Place {
    fn take(managed: &Managed) -> Result<Self, AcquireError> {
        let mut waiting = Box::pin(Arc::clone(&managed.attachment).acquire_owned());
        // Being asked once is what puts it in the queue.
        match (&mut waiting).now_or_never() {
            Some(permit) => permit.map(Self::First),
            None => Ok(Self::Behind(waiting)),
        }
    }

    async fn come(self) -> Result<OwnedSemaphorePermit, AcquireError> {
        match self {
            Self::First(permit) => Ok(permit),
            Self::Behind(waiting) => waiting.await,
        }
    }
}

impl Attachable {
    pub(crate) fn new(managed: Arc<Managed>) -> Result<Self, SessionError> {
        if managed.is_running() || managed.outlet.has_undelivered() {
            Self::queued(managed)
        } else {
            Err(managed.not_running())
        }
    }

    /// An ended process too, as long as its output is kept: whoever lost the end of it may ask again.
    pub(crate) fn since(managed: Arc<Managed>, since: Since) -> Result<Self, SessionError> {
        let attachable = match since {
            Since::Now => Self::new(managed)?,
            Since::Offset(_) => Self::queued(managed)?,
        };
        attachable.check_at(since)?;
        Ok(attachable)
    }

    fn queued(managed: Arc<Managed>) -> Result<Self, SessionError> {
        let place = Place::take(&managed).map_err(|_| managed.replaced())?;
        Ok(Self { managed, place })
    }

    /// Whether the output can be had from there on, as things are now.
    pub fn check_at(&self, since: Since) -> Result<(), SessionError> {
        self.managed.outlet.find(since).map(drop)
    }

    /// Waits while another one is attached. An error means that the process was stopped or
    /// replaced meanwhile. The output comes in lines.
    pub async fn attach(self) -> Result<Attachment, SessionError> {
        let attachment = self.turn().await?;
        attachment.managed.outlet.attach_for_lines();
        Ok(attachment)
    }

    /// As [`Attachable::attach`], for the bytes of the output from any place that is kept.
    pub async fn attach_at(self, since: Since) -> Result<Attachment, SessionError> {
        let mut attachment = self.turn().await?;
        attachment.stdout_offset = attachment.managed.outlet.attach_for_bytes(since)?;
        Ok(attachment)
    }

    async fn turn(self) -> Result<Attachment, SessionError> {
        let Self { managed, place } = self;
        let permit = place.come().await.map_err(|_| managed.replaced())?;
        let attended = Attended::new(&managed.activity);
        managed.activity.frost.thaw().await?;
        Ok(Attachment {
            stdout_offset: 0,
            managed,
            _attended: attended,
            _permit: permit,
        })
    }
}

/// The only attachment of a process. Dropping it lets the next one in; the process runs on, and
/// its output is kept.
pub struct Attachment {
    managed: Arc<Managed>,
    stdout_offset: u64,
    _attended: Attended,
    _permit: OwnedSemaphorePermit,
}

impl Attachment {
    /// One line of stdout without its end, however long (up to 64 MiB; a longer one comes in
    /// pieces). `None` after the end and the last line. Asking for the next line says that the one
    /// before it has arrived. Cancel-safe.
    pub async fn next_line(&self) -> Option<Vec<u8>> {
        let line = self.managed.outlet.next_line().await?;
        self.touch();
        Some(line)
    }

    /// Gives back the last line because it could not be delivered; it is the next one to come out.
    pub fn put_back(&self, _line: Vec<u8>) {
        self.managed.outlet.put_back();
    }

    /// Another process of the same id has another beginning.
    pub fn started_at(&self) -> Timestamp {
        self.managed.started_at
    }

    /// Where the bytes begin, when it was attached for bytes.
    pub fn stdout_offset(&self) -> u64 {
        self.stdout_offset
    }

    /// Bytes of stdout, and the offset of the first of them in all that the process ever wrote.
    /// `None` after the end. Cancel-safe.
    pub async fn next_bytes(&self, most: usize) -> Option<(u64, Bytes)> {
        let (offset, bytes) = self.managed.outlet.next_bytes(most).await?;
        self.touch();
        Some((offset, Bytes::from(bytes)))
    }

    /// Everything before is safe with the client. From the first of these on, nothing is forgotten
    /// that the client does not have, and it is not given more than can be kept.
    pub fn acknowledge(&self, offset: u64) {
        self.managed.outlet.acknowledge(offset);
    }

    /// How many bytes of input the process has been promised in its life.
    pub fn stdin_accepted(&self) -> u64 {
        self.managed.stdin.accepted()
    }

    /// Writes to stdin as it is, waiting while the process does not read. Cancel-safe in this
    /// sense: all of it is accepted, or nothing, and what is accepted is written unless the process ends.
    pub async fn send(&self, bytes: &[u8]) -> Result<u64, SessionError> {
        self.touch();
        let sent = self.managed.stdin.send(bytes).await;
        sent.map_err(|_| self.managed.not_running())
    }

    /// As [`Attachment::send`], but returns as soon as the bytes are safe, with how many have been
    /// accepted by then. They outlive the daemon on their way to the process.
    pub async fn accept(&self, bytes: &[u8]) -> Result<u64, SessionError> {
        self.touch();
        let accepted = self.managed.stdin.accept(bytes).await;
        accepted.map_err(|_| self.managed.not_running())
    }

    /// The process's input ends after what was accepted.
    pub fn close_stdin(&self) {
        self.touch();
        self.managed.stdin.finish();
    }

    /// Resolves when the process has ended and its last words have been read.
    pub async fn exited(&self) -> ProcessExit {
        self.managed.exited().await
    }

    /// The session was used just now.
    pub fn touch(&self) {
        self.managed.activity.touch();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.managed.outlet.detach();
    }
}
