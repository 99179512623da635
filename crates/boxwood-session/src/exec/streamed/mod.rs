//! Execs whose output is streamed to a client while they run.
//!
//! The output goes through journals, so that a client can read it again from any offset that is kept,
//! also after the daemon was killed. A command whose client disconnects is killed, unless it was started
//! as resumable.

mod client;
mod follow;
mod start;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use boxwood_api::{ExecExit, ExecResult, Reason, SessionId};
use bytes::Bytes;
use tokio::sync::watch;

use crate::exec::capture::text_of;
use crate::exec::captured;
use crate::program::{ExecNote, Journal, Program, Since, Streaming, exec_exit};
use crate::session::activity::lock;
use crate::{Result, SessionError};

pub use client::StreamedExec;
pub(crate) use start::{adopt, start};

#[derive(Clone, Debug, PartialEq)]
pub enum ExecEvent {
    /// On a terminal this contains stderr too.
    Stdout(Bytes),
    Stderr(Bytes),
    /// Always the last one.
    Exited(ExecExit),
}

/// What happens to a command whose client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// It is killed.
    Never,
    /// It runs on for a while, and another client may attach.
    Allowed,
}

/// A streamed exec, running or ended.
pub(crate) struct Streamed {
    pub(crate) session: SessionId,
    backend: &'static str,
    pub(crate) note: ExecNote,
    pub(crate) adopted: bool,
    pub(crate) program: Program,
    streaming: Streaming,
    /// How long it runs without a client.
    resume_grace: Duration,
    /// Number of the attached client in the queue of stdout.
    client: watch::Sender<Option<u64>>,
    /// Held while a client attaches to both streams.
    attaching: Mutex<()>,
    exit: OnceLock<ExecExit>,
}

impl Streamed {
    pub(crate) fn is_resumable(&self) -> bool {
        self.streaming.resumable
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.client.borrow().is_some()
    }

    pub(crate) fn journals(&self) -> [&Arc<Journal>; 2] {
        [self.program.stdout.journal(), self.program.stderr.journal()]
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        let sizes = self.journals().map(|journal| journal.kept_bytes());
        sizes.iter().sum()
    }

    /// Returns the result of an ended command, with the output that is still kept.
    pub(crate) fn result(&self) -> ExecResult {
        let outputs = self.journals().map(|journal| {
            let output = journal.read(journal.start(), usize::MAX);
            let output = output.unwrap_or_else(|error| {
                let exec_id = self.note.exec_id;
                tracing::warn!(%error, exec_id, "failed to read the output of an ended command");
                Vec::new()
            });
            text_of(Vec::new(), &output, journal.end())
        });
        captured::result(
            &self.session,
            self.backend,
            &self.note,
            self.exit(),
            outputs,
        )
    }

    /// Set before the command is listed as ended and before clients have read all of its output.
    fn exit(&self) -> ExecExit {
        let exit = self.exit.get().cloned();
        exit.unwrap_or_else(|| exec_exit(None, Some(Reason::BoxGone)))
    }

    /// Attaches another client in place of the current one.
    pub(crate) fn resume(self: &Arc<Self>, stdout: Since, stderr: Since) -> Result<StreamedExec> {
        if !self.is_resumable() && !self.adopted {
            return Err(SessionError::invalid(format!(
                "command {} was not started as resumable",
                self.note.exec_id
            )));
        }
        self.attach(stdout, stderr)
    }

    fn attach(self: &Arc<Self>, stdout: Since, stderr: Since) -> Result<StreamedExec> {
        let _attaching = lock(&self.attaching);
        // Checked first: the current client stays if the request is invalid.
        self.program.stderr.find(stderr)?;
        let (on_stdout, stdout_offset) = self.program.stdout.attach_for_bytes(stdout)?;
        let (on_stderr, stderr_offset) = self.program.stderr.attach_for_bytes(stderr)?;
        self.client.send_replace(Some(on_stdout));
        Ok(StreamedExec {
            exec: Arc::clone(self),
            clients: [on_stdout, on_stderr],
            stdout_offset,
            stderr_offset,
            ended: AtomicBool::new(false),
        })
    }

    fn detach(&self, [on_stdout, on_stderr]: [u64; 2]) {
        self.program.stdout.detach(on_stdout);
        self.program.stderr.detach(on_stderr);
        self.client
            .send_if_modified(|current| current.take_if(|client| *client == on_stdout).is_some());
    }
}
