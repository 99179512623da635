//! A command whose input and output flow while it runs.
//!
//! Comes in: a started process. Goes out: [`LiveEvent`]s in order, `Exited` last. Both outputs go through
//! journals, so that they can be had again from any place that is kept, also after the daemon was killed.
//! What waits is bounded: when the reader is slow the pipe fills and the command waits, which is what a
//! terminal does too. When the reader is gone the command's tree is killed, unless it may come back.

mod adopt;
mod control;
mod delivery;
mod follow;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use boxwood_api::{ExecExit, ExecResult, ExecStatus, Reason, SessionId};
use boxwood_backend::{ProcessControl, Stdio};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::SessionError;
use crate::activity::lock;
use crate::capture::last_part;
use crate::drain::Which;
use crate::facts::Facts;
use crate::input::Stdin;
use crate::journal::Journal;
use crate::notes::ExecNote;
use crate::parting::Parting;
use crate::replay::{ReplayLimits, Since};

pub(crate) use adopt::{Adopted, adopt};
pub use control::{Acker, LiveControl, LiveInput};
use delivery::{Reader, Strand, Strands};
pub(crate) use start::{Wish, start};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveEvent {
    /// On a terminal this carries stderr too.
    Stdout(Bytes),
    Stderr(Bytes),
    /// Always the last one.
    Exited {
        exit_code: Option<i32>,
        status: ExecStatus,
        reason: Option<Reason>,
        duration_ms: u64,
        notices: Vec<String>,
    },
}

/// What becomes of a command whose reader is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// It is killed.
    Never,
    /// It goes on for a while, and another reader may go on with it.
    Allowed,
}

/// A command and its only reader. Dropping it before the command's end kills the command's whole tree,
/// unless somebody may come back for it.
pub struct LiveExec {
    exec_id: u64,
    stdout_offset: u64,
    stderr_offset: u64,
    control: LiveControl,
    events: mpsc::Receiver<LiveEvent>,
}

impl LiveExec {
    pub fn exec_id(&self) -> u64 {
        self.exec_id
    }

    /// Where the output begins that comes.
    pub fn stdout_offset(&self) -> u64 {
        self.stdout_offset
    }

    pub fn stderr_offset(&self) -> u64 {
        self.stderr_offset
    }

    /// How many bytes of input the command has been promised; `None` when it has no input.
    pub fn stdin_accepted(&self) -> Option<u64> {
        self.control.input().map(|input| input.accepted())
    }

    /// Input and output go separate ways. Dropping the control closes the command's input (unless
    /// somebody may come back for it) and nothing more; dropping the receiver kills the command's
    /// tree (with the same exception).
    pub fn split(self) -> (LiveControl, mpsc::Receiver<LiveEvent>) {
        (self.control, self.events)
    }
}

/// Whether somebody new can still reach the task that follows the command.
enum Door {
    Open(Option<Reader>),
    /// The command has ended: whoever comes is served from the journals.
    Over,
}

/// What everybody who has to do with one command shares.
pub(crate) struct Live {
    pub(crate) note: ExecNote,
    pub(crate) adopted: bool,
    pub(crate) control: Arc<dyn ProcessControl>,
    pub(crate) signalled: Arc<AtomicBool>,
    resume: Resume,
    stdio: Stdio,
    stdin: Option<Arc<Stdin>>,
    stdout: Arc<Journal>,
    stderr: Arc<Journal>,
    facts: Facts,
    limits: ReplayLimits,
    attached: AtomicBool,
    door: Mutex<Door>,
    knock: Notify,
    end: OnceLock<ExecExit>,
    parting: Parting,
}

impl Live {
    pub(crate) fn is_resumable(&self) -> bool {
        self.resume == Resume::Allowed
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    pub(crate) fn outputs(&self) -> [&Arc<Journal>; 2] {
        [&self.stdout, &self.stderr]
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        self.stdout.kept_bytes() + self.stderr.kept_bytes()
    }

    /// What it came to, as far as it is kept. Asked for once it has ended.
    pub(crate) fn result(&self, session_id: SessionId, backend_name: String) -> ExecResult {
        let text = |journal: &Journal| {
            let kept = journal.read(journal.start(), usize::MAX);
            let kept = kept.unwrap_or_else(|error| {
                tracing::warn!(%error, "the output of a command cannot be read back");
                Vec::new()
            });
            let dropped = journal.end().saturating_sub(kept.len() as u64);
            last_part(kept, dropped)
        };
        let (stdout, stdout_capture) = text(&self.stdout);
        let (stderr, stderr_capture) = text(&self.stderr);
        let exit = self.exit();
        ExecResult {
            session_id,
            backend_name,
            status: exit.status,
            exit_code: exit.exit_code,
            stdout,
            stderr,
            duration_ms: exit.duration_ms,
            reason: exit.reason,
            stdout_capture,
            stderr_capture,
            notices: [self.note.notices.clone(), exit.notices].concat(),
        }
    }

    fn exit(&self) -> ExecExit {
        // Set before anybody can ask.
        self.end.get().cloned().unwrap_or(ExecExit {
            exit_code: None,
            status: ExecStatus::Completed,
            reason: Some(Reason::BoxGone),
            duration_ms: 0,
            notices: Vec::new(),
        })
    }

    fn exited(&self) -> LiveEvent {
        let exit = self.exit();
        LiveEvent::Exited {
            exit_code: exit.exit_code,
            status: exit.status,
            reason: exit.reason,
            duration_ms: exit.duration_ms,
            notices: exit.notices,
        }
    }

    fn strands(&self) -> Strands {
        let strand = |which, journal| Strand::new(which, Arc::clone(journal), self.limits);
        Strands {
            stdout: strand(Which::Stdout, &self.stdout),
            stderr: strand(Which::Stderr, &self.stderr),
        }
    }

    fn reader(self: &Arc<Self>, stdout: u64, stderr: u64) -> (Reader, LiveExec) {
        let (reader, events) = Reader::new(stdout, stderr);
        let exec = LiveExec {
            exec_id: self.note.exec_id,
            stdout_offset: stdout,
            stderr_offset: stderr,
            control: LiveControl::new(self, Arc::clone(&reader.acks)),
            events,
        };
        (reader, exec)
    }

    /// Goes on with it from there, in the place of whoever followed it before.
    pub(crate) fn follow_again(
        self: &Arc<Self>,
        stdout: Since,
        stderr: Since,
    ) -> Result<LiveExec, SessionError> {
        if self.resume == Resume::Never && !self.adopted {
            return Err(SessionError::Invalid {
                what: format!("command {} was not started as resumable", self.note.exec_id),
            });
        }
        let stdout = stdout.within(&self.stdout, self.stdout.delivered())?;
        let stderr = stderr.within(&self.stderr, self.stderr.delivered())?;
        let (reader, exec) = self.reader(stdout, stderr);
        match &mut *lock(&self.door) {
            Door::Open(caller) => {
                *caller = Some(reader);
                self.knock.notify_one();
            }
            Door::Over => {
                tokio::spawn(self.strands().deliver_rest(reader, self.exited()));
            }
        }
        Ok(exec)
    }

    /// Somebody new, if there is somebody.
    fn caller(&self) -> Option<Reader> {
        match &mut *lock(&self.door) {
            Door::Open(caller) => caller.take(),
            Door::Over => None,
        }
    }

    /// From now on the journals are all there is. The last one to come may have come just before.
    fn close_door(&self) -> Option<Reader> {
        match std::mem::replace(&mut *lock(&self.door), Door::Over) {
            Door::Open(caller) => caller,
            Door::Over => None,
        }
    }
}
