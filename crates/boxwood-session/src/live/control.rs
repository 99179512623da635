//! What the one who follows a command may do to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_backend::{Scope, Stdio, TerminalSize};

use super::delivery::Acks;
use super::{Live, Resume};
use crate::SessionError;
use crate::facts::Fact;
use crate::input::Stdin;
use crate::leash::{SIGKILL, scope_of};

pub struct LiveControl {
    live: Arc<Live>,
    acks: Arc<Acks>,
    /// Until it is closed.
    stdin: Option<LiveInput>,
}

impl LiveControl {
    pub(super) fn new(live: &Arc<Live>, acks: Arc<Acks>) -> Self {
        let input = live
            .stdin
            .as_ref()
            .map(|stdin| LiveInput(Arc::clone(stdin)));
        Self {
            live: Arc::clone(live),
            acks,
            stdin: input,
        }
    }

    /// Waits while the command does not read. Cancel-safe in this sense: all of it is accepted, or
    /// nothing, and what is accepted is written.
    pub async fn write_stdin(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let Some(input) = &self.stdin else {
            return Err(SessionError::InputClosed);
        };
        let sent = input.0.send(bytes).await;
        sent.map(drop).map_err(|_| SessionError::InputClosed)
    }

    /// The input ends after what was accepted.
    pub fn close_stdin(&mut self) {
        if let Some(input) = self.stdin.take() {
            input.close();
        }
    }

    /// Another way to the same input; `None` when there is none, or it was closed.
    pub fn input(&self) -> Option<LiveInput> {
        self.stdin.clone()
    }

    /// For saying what has safely arrived.
    pub fn acker(&self) -> Acker {
        Acker(Arc::clone(&self.acks))
    }

    /// Signals that end things reach the whole tree; on a terminal, its foreground group.
    ///
    /// The future borrows nothing, so that it can be sent to another thread.
    pub fn signal(
        &self,
        signal: i32,
    ) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        let scope = match self.live.stdio {
            Stdio::Terminal(_) if signal != SIGKILL => Scope::Process,
            _ => scope_of(signal),
        };
        // Set first: the end may be seen before this call is over.
        if !self.live.signalled.swap(true, Ordering::AcqRel) {
            self.live.facts.add(&Fact::Asked);
        }
        let control = Arc::clone(&self.live.control);
        async move {
            control
                .signal(signal, scope)
                .await
                .map_err(SessionError::control)
        }
    }

    pub fn resize(&self, size: TerminalSize) -> Result<(), SessionError> {
        self.live
            .control
            .resize(size)
            .map_err(SessionError::control)
    }
}

impl Drop for LiveControl {
    fn drop(&mut self) {
        // A daemon that leaves sends its clients away; their commands do not hear of it.
        if self.live.resume == Resume::Never && !self.live.parting.has_begun() {
            self.close_stdin();
        }
    }
}

/// The input of a command.
#[derive(Clone)]
pub struct LiveInput(Arc<Stdin>);

impl LiveInput {
    /// Returns when the bytes are safe, with how many have been accepted by then; they outlive the
    /// daemon on their way to the command. Waits while too many are on their way. Cancel-safe: all of
    /// them are accepted, or none.
    pub async fn accept(&self, bytes: &[u8]) -> Result<u64, SessionError> {
        let accepted = self.0.accept(bytes).await;
        accepted.map_err(|_| SessionError::InputClosed)
    }

    /// All bytes that were ever accepted.
    pub fn accepted(&self) -> u64 {
        self.0.accepted()
    }

    /// The input ends after what was accepted.
    pub fn close(&self) {
        self.0.finish();
    }
}

/// Says what has safely arrived. From the first word on nothing is forgotten that the reader does not
/// have, and it is not given more than can be kept.
#[derive(Clone)]
pub struct Acker(Arc<Acks>);

impl Acker {
    /// Everything before these offsets.
    pub fn acknowledge(&self, stdout: u64, stderr: u64) {
        self.0.say(stdout, stderr);
    }
}
