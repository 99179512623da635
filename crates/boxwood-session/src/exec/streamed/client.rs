//! The client of a streamed exec.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_backend::{Scope, TerminalSize};
use bytes::Bytes;

use super::{ExecEvent, Streamed};
use crate::program::{SIGKILL, StdioNote, scope_of};
use crate::{Result, SessionError};

/// Maximum of one event.
const EVENT_BYTES: usize = 64 * 1024;

/// The only client of a streamed exec. Dropping it before the end kills the command and its children,
/// unless the command is resumable.
pub struct StreamedExec {
    pub(super) exec: Arc<Streamed>,
    /// Its numbers in the queues of stdout and stderr.
    pub(super) clients: [u64; 2],
    pub(super) stdout_offset: u64,
    pub(super) stderr_offset: u64,
    pub(super) ended: AtomicBool,
}

impl StreamedExec {
    pub fn exec_id(&self) -> u64 {
        self.exec.note.exec_id
    }

    /// Offset of the first byte of stdout that this client receives.
    pub fn stdout_offset(&self) -> u64 {
        self.stdout_offset
    }

    pub fn stderr_offset(&self) -> u64 {
        self.stderr_offset
    }

    /// Returns the next event, or `None` after `Exited` or when another client has attached.
    /// Cancel-safe.
    pub async fn next(&self) -> Option<ExecEvent> {
        let program = &self.exec.program;
        tokio::select! {
            Some((_, bytes)) = program.stdout.next_bytes(self.clients[0], EVENT_BYTES) => {
                Some(ExecEvent::Stdout(Bytes::from(bytes)))
            }
            Some((_, bytes)) = program.stderr.next_bytes(self.clients[1], EVENT_BYTES) => {
                Some(ExecEvent::Stderr(Bytes::from(bytes)))
            }
            else => {
                let is_last = program.stdout.is_current(self.clients[0])
                    && !self.ended.swap(true, Ordering::AcqRel);
                is_last.then(|| ExecEvent::Exited(self.exec.exit()))
            }
        }
    }

    /// Everything before these offsets has arrived. From the first call on, output that was not
    /// acknowledged is kept, and the client receives no more than can be kept.
    pub fn acknowledge(&self, stdout: u64, stderr: u64) {
        let program = &self.exec.program;
        program.stdout.acknowledge(self.clients[0], stdout);
        program.stderr.acknowledge(self.clients[1], stderr);
    }

    /// Returns when the program has received the bytes, and waits while it does not read. All bytes are
    /// accepted or none; accepted bytes are written even if this future is dropped.
    pub async fn write_stdin(&self, bytes: &[u8]) -> Result<()> {
        self.check_stdin()?;
        let sent = self.exec.program.stdin.send(bytes).await;
        sent.map(drop).map_err(|_| SessionError::InputClosed)
    }

    /// Returns once the bytes are in the journal of the input, with the number of all accepted bytes. They
    /// reach the command even if the daemon is restarted. Waits while too many bytes are on their way.
    /// Cancel-safe: all of them are accepted, or none.
    pub async fn accept_stdin(&self, bytes: &[u8]) -> Result<u64> {
        self.check_stdin()?;
        let accepted = self.exec.program.stdin.accept(bytes).await;
        accepted.map_err(|_| SessionError::InputClosed)
    }

    /// Returns the number of accepted bytes, or `None` if the command was started without input.
    pub fn stdin_accepted(&self) -> Option<u64> {
        self.check_stdin().ok()?;
        Some(self.exec.program.stdin.accepted())
    }

    /// The input ends after the accepted bytes.
    pub fn close_stdin(&self) {
        self.exec.program.stdin.finish();
    }

    fn check_stdin(&self) -> Result<()> {
        match self.exec.streaming.stdio {
            StdioNote::Output => Err(SessionError::InputClosed),
            StdioNote::Pipes | StdioNote::Terminal => Ok(()),
        }
    }

    /// Signals that end a program are sent to all its children too, on a terminal to the foreground group.
    pub async fn signal(&self, signal: i32) -> Result<()> {
        let scope = match self.exec.streaming.stdio {
            StdioNote::Terminal if signal != SIGKILL => Scope::Process,
            _ => scope_of(signal),
        };
        let program = &self.exec.program;
        program.request_stop();
        let sent = program.control.signal(signal, scope).await;
        sent.map_err(SessionError::control)
    }

    pub fn resize(&self, size: TerminalSize) -> Result<()> {
        let resized = self.exec.program.control.resize(size);
        resized.map_err(SessionError::control)
    }
}

impl Drop for StreamedExec {
    fn drop(&mut self) {
        self.exec.detach(self.clients);
    }
}
