//! The client of a managed process.

use std::future::ready;
use std::sync::Arc;

use boxwood_api::ProcessExit;
use boxwood_backend::BoxFuture;
use bytes::Bytes;
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::Managed;
use crate::Result;
use crate::program::{OutputQueue, Since};
use crate::session::activity::Use;

/// A place in the queue of clients of a process. Clients are attached in the order of these.
pub struct Attachable {
    managed: Arc<Managed>,
    permit: BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>,
}

impl Attachable {
    /// An ended process can be attached to while it has unread output or, with an offset, while its
    /// output is kept.
    pub(crate) fn new(managed: Arc<Managed>, since: Since) -> Result<Self> {
        let stdout = &managed.program.stdout;
        if since == Since::Now && !managed.is_running() && !stdout.has_undelivered() {
            return Err(managed.not_running());
        }
        let acquiring = Arc::clone(&managed.attachment).acquire_owned();
        let mut permit: BoxFuture<'static, _> = Box::pin(acquiring);
        // The first poll enters the queue.
        match (&mut permit).now_or_never() {
            Some(Ok(acquired)) => permit = Box::pin(ready(Ok(acquired))),
            Some(Err(_)) => return Err(managed.replaced()),
            None => {}
        }
        stdout.find(since)?;
        Ok(Self { managed, permit })
    }

    /// Waits while another client is attached. Fails if the process is stopped or replaced meanwhile. The
    /// client reads lines.
    pub async fn attach(self) -> Result<Attachment> {
        let mut attachment = self.wait().await?;
        attachment.client = attachment.managed.program.stdout.attach_for_lines();
        Ok(attachment)
    }

    /// As [`Attachable::attach`]. The client reads bytes from any offset that is kept.
    pub async fn attach_at(self, since: Since) -> Result<Attachment> {
        let mut attachment = self.wait().await?;
        let (client, offset) = attachment.managed.program.stdout.attach_for_bytes(since)?;
        attachment.client = client;
        attachment.stdout_offset = offset;
        Ok(attachment)
    }

    async fn wait(self) -> Result<Attachment> {
        let Self { managed, permit } = self;
        let permit = permit.await.map_err(|_| managed.replaced())?;
        let attended = Use::attended(&managed.activity);
        managed.activity.freeze_state.thaw().await?;
        Ok(Attachment {
            client: 0,
            stdout_offset: 0,
            managed,
            _attended: attended,
            _permit: permit,
        })
    }
}

/// The attached client of a process. Dropping it attaches the next one; the process runs on, and its
/// output is kept.
pub struct Attachment {
    managed: Arc<Managed>,
    /// Its number in the queue of stdout.
    client: u64,
    stdout_offset: u64,
    _attended: Use,
    _permit: OwnedSemaphorePermit,
}

impl Attachment {
    fn stdout(&self) -> &OutputQueue {
        &self.managed.program.stdout
    }

    /// Returns a line of stdout without its newline, or `None` after the last. A line longer than 64 MiB is
    /// returned in pieces. The call acknowledges the line before. Cancel-safe.
    pub async fn next_line(&self) -> Option<Vec<u8>> {
        let line = self.stdout().next_line().await?;
        self.touch();
        Some(line)
    }

    /// Returns the last line to the queue because it could not be delivered.
    pub fn put_back(&self) {
        self.stdout().put_back();
    }

    /// Differs for another process with the same id.
    pub fn started_at(&self) -> Timestamp {
        self.managed.started_at
    }

    /// Offset of the first byte of a client that reads bytes.
    pub fn stdout_offset(&self) -> u64 {
        self.stdout_offset
    }

    /// Returns bytes of stdout and the offset of the first, or `None` after the end. Cancel-safe.
    pub async fn next_bytes(&self, max_bytes: usize) -> Option<(u64, Bytes)> {
        let (offset, bytes) = self.stdout().next_bytes(self.client, max_bytes).await?;
        self.touch();
        Some((offset, Bytes::from(bytes)))
    }

    /// Everything before this offset has arrived. From the first call on, output that was not
    /// acknowledged is kept, and the client receives no more than can be kept.
    pub fn acknowledge(&self, offset: u64) {
        self.stdout().acknowledge(self.client, offset);
    }

    /// Returns the number of all accepted bytes of input.
    pub fn stdin_accepted(&self) -> u64 {
        self.managed.program.stdin.accepted()
    }

    /// Returns when the process has received the bytes, and waits while it does not read. All bytes are
    /// accepted or none; accepted bytes are written even if this future is dropped.
    pub async fn send(&self, bytes: &[u8]) -> Result<u64> {
        self.touch();
        let sent = self.managed.program.stdin.send(bytes).await;
        sent.map_err(|_| self.managed.not_running())
    }

    /// As [`Attachment::send`], but returns once the bytes are in the journal of the input, with the number
    /// of all accepted bytes. They reach the process even if the daemon is restarted.
    pub async fn accept(&self, bytes: &[u8]) -> Result<u64> {
        self.touch();
        let accepted = self.managed.program.stdin.accept(bytes).await;
        accepted.map_err(|_| self.managed.not_running())
    }

    /// The input ends after the accepted bytes.
    pub fn close_stdin(&self) {
        self.touch();
        self.managed.program.stdin.finish();
    }

    /// Resolves when the process has ended and its output has been read.
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
        self.stdout().detach(self.client);
    }
}
