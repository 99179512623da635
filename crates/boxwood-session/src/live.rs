//! A command whose input and output flow while it runs.
//!
//! Comes in: a started process. Goes out: [`LiveEvent`]s in order, `Exited` last. The channel is
//! bounded: when its reader is slow the pipe fills and the command waits, which is what a terminal
//! does too. When the reader is gone the command's tree is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boxwood_api::{ExecStatus, Reason};
use boxwood_backend::{
    Exit, ExitStatus, Input, Process, ProcessControl, Scope, Stdio, TerminalSize,
};
use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::SessionError;
use crate::drain::{LastWords, Taps, Which};
use crate::exec::timed_out;
use crate::leash::{Killed, Leash, SIGKILL, kill_tree, scope_of};
use crate::reason::{Asked, reason};
use crate::session::{ExecEnd, ExecRecord};

/// Pieces of output under way between the process and its reader; each is one read of a pipe.
const PIECES: usize = 16;

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
    },
}

/// A running command. Dropping it before its end kills the command's whole tree.
pub struct LiveExec {
    exec_id: u64,
    control: LiveControl,
    events: mpsc::Receiver<LiveEvent>,
}

impl LiveExec {
    pub fn exec_id(&self) -> u64 {
        self.exec_id
    }

    /// Input and output go separate ways. Dropping the control closes the command's input and
    /// nothing more; dropping the receiver kills the command's tree.
    pub fn split(self) -> (LiveControl, mpsc::Receiver<LiveEvent>) {
        (self.control, self.events)
    }
}

pub struct LiveControl {
    stdin: Option<Box<dyn Input>>,
    control: Arc<dyn ProcessControl>,
    stdio: Stdio,
    signalled: Arc<AtomicBool>,
}

impl LiveControl {
    /// Waits while the command does not read. Not cancel-safe: part of the bytes may be written.
    pub async fn write_stdin(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let Some(stdin) = &mut self.stdin else {
            return Err(SessionError::InputClosed);
        };
        let written = async {
            stdin.write_all(bytes).await?;
            stdin.flush().await
        };
        if written.await.is_err() {
            self.stdin = None;
            return Err(SessionError::InputClosed);
        }
        Ok(())
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Takes the input away, so that a write that waits does not keep signals waiting. Dropping it
    /// is its end.
    pub fn take_stdin(&mut self) -> Option<Box<dyn Input>> {
        self.stdin.take()
    }

    /// Signals that end things reach the whole tree; on a terminal, its foreground group.
    ///
    /// The future borrows nothing, so that it can be sent to another thread although the input
    /// cannot be shared with one.
    pub fn signal(
        &self,
        signal: i32,
    ) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        let scope = match self.stdio {
            Stdio::Terminal(_) if signal != SIGKILL => Scope::Process,
            _ => scope_of(signal),
        };
        // Set first: the end may be seen before this call is over.
        self.signalled.store(true, Ordering::Release);
        let control = Arc::clone(&self.control);
        async move {
            control
                .signal(signal, scope)
                .await
                .map_err(SessionError::control)
        }
    }

    pub fn resize(&self, size: TerminalSize) -> Result<(), SessionError> {
        self.control.resize(size).map_err(SessionError::control)
    }
}

/// Follows a started process in a task of its own. `unkillable` is called when its box has to go.
pub(crate) fn launch(
    record: ExecRecord,
    mut process: Process,
    stdio: Stdio,
    timeout: Duration,
    unkillable: impl FnOnce() + Send + 'static,
) -> LiveExec {
    let (sender, events) = mpsc::channel(PIECES);
    let signalled = Arc::new(AtomicBool::new(false));
    let control = LiveControl {
        stdin: process.stdin.take(),
        control: Arc::clone(&process.control),
        stdio,
        signalled: Arc::clone(&signalled),
    };
    let exec_id = record.exec_id;
    tokio::spawn(async move {
        let leash = Leash::new(Arc::clone(&process.control));
        let mut stream = Stream {
            taps: Taps::of(&mut process),
            control: process.control,
            sender,
            waiting: None,
        };
        let (exit, killed) = match stream.follow(timeout).await {
            Ended::Exited(exit) => (Some(exit), None),
            Ended::TimedOut(killed) => (None, Some(killed)),
            // Nobody listens: the leash kills the tree, the record says `cancelled`.
            Ended::Abandoned => return,
        };
        leash.let_go();
        if matches!(killed, Some(Killed::Alive)) {
            unkillable();
        }
        let end = exit.map_or_else(timed_out, |exit| {
            live_end(&exit, signalled.load(Ordering::Acquire), &record)
        });
        let duration_ms = record.finish(&end);
        if stream.last_words().await {
            let exited = LiveEvent::Exited {
                exit_code: end.exit_code,
                status: end.status,
                reason: end.reason,
                duration_ms,
            };
            // A reader that left has no use for it.
            let _ = stream.sender.send(exited).await;
        }
        stream.taps.discard_rest();
    });
    LiveExec {
        exec_id,
        control,
        events,
    }
}

fn live_end(exit: &Exit, signalled: bool, record: &ExecRecord) -> ExecEnd {
    let asked = match exit.status {
        ExitStatus::BoxGone => record.session().asked(),
        ExitStatus::Signal(_) if signalled => Asked::Caller,
        ExitStatus::Code(_) | ExitStatus::Signal(_) => Asked::Nobody,
    };
    ExecEnd {
        status: ExecStatus::Completed,
        exit_code: exit.code(),
        reason: reason(exit, asked),
    }
}

enum Ended {
    Exited(Exit),
    TimedOut(Killed),
    Abandoned,
}

struct Stream {
    taps: Taps,
    control: Arc<dyn ProcessControl>,
    sender: mpsc::Sender<LiveEvent>,
    /// Read, but not yet taken by the reader: nothing more is read until it is.
    waiting: Option<LiveEvent>,
}

impl Stream {
    async fn follow(&mut self, timeout: Duration) -> Ended {
        let control = Arc::clone(&self.control);
        let mut wait = control.wait();
        let mut deadline = std::pin::pin!(sleep(timeout));
        loop {
            tokio::select! {
                exit = &mut wait => return Ended::Exited(exit),
                () = &mut deadline => return Ended::TimedOut(kill_tree(&*control).await),
                () = self.sender.closed() => return Ended::Abandoned,
                permit = self.sender.reserve(), if self.waiting.is_some() => {
                    match (permit, self.waiting.take()) {
                        (Ok(permit), Some(piece)) => permit.send(piece),
                        _ => return Ended::Abandoned,
                    }
                }
                which = self.taps.fill(), if self.waiting.is_none() && self.taps.is_open() => {
                    self.waiting = piece(which, self.taps.bytes(which));
                }
            }
        }
    }

    /// False when the reader left meanwhile.
    async fn last_words(&mut self) -> bool {
        // The end may overtake a piece; it is delivered all the same.
        if let Some(piece) = self.waiting.take()
            && self.sender.send(piece).await.is_err()
        {
            return false;
        }
        let mut last_words = LastWords::begin();
        while self.taps.is_open() {
            let which = tokio::select! {
                which = self.taps.fill() => which,
                () = last_words.over() => break,
            };
            if let Some(piece) = piece(which, self.taps.bytes(which)) {
                last_words.heard(self.taps.bytes(which).len());
                let since = Instant::now();
                if self.sender.send(piece).await.is_err() {
                    return false;
                }
                last_words.held_up(since);
            }
        }
        true
    }
}

fn piece(which: Which, bytes: &[u8]) -> Option<LiveEvent> {
    if bytes.is_empty() {
        return None;
    }
    let bytes = Bytes::copy_from_slice(bytes);
    Some(match which {
        Which::Stdout => LiveEvent::Stdout(bytes),
        Which::Stderr => LiveEvent::Stderr(bytes),
    })
}
