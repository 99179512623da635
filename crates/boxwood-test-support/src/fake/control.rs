//! Waits for a program, and signals it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::{
    BoxFuture, ControlError, Exit, ExitStatus, ProcessControl, Scope, TerminalSize,
};
use rustix::process::{Signal, kill_process, kill_process_group};

use super::life::Point;
use super::link::Token;
use super::program::{Program, ProgramKind, exit};
use super::tree;

const FATAL_SIGNALS: [i32; 4] = [1, 2, 9, 15];

pub(super) struct FakeControl {
    token: Arc<Token>,
}

impl FakeControl {
    pub(super) fn new(token: Arc<Token>) -> Self {
        Self { token }
    }

    async fn signal(&self, number: i32, scope: Scope) -> Result<(), ControlError> {
        let signal = Signal::from_named_raw(number).ok_or(ControlError::BadSignal(number))?;
        let link = &self.token.link;
        let point = Point::BeforeSignal;
        let reaching = link
            .host
            .faults
            .reach(point, &link.life, Some(&link.fake_box));
        reaching.await.map_err(ControlError::Io)?;
        let program = &self.token.program;
        if scope == Scope::Process && !program.is_running() {
            return Err(ControlError::Ended);
        }
        match &program.kind {
            ProgramKind::Script(script) => {
                if FATAL_SIGNALS.contains(&number) {
                    script.end(ExitStatus::Signal(number));
                }
                Ok(())
            }
            ProgramKind::Child { pid, mark } => match scope {
                Scope::Process => {
                    let terminal = program.terminal.as_ref();
                    let group = terminal.and_then(|terminal| terminal.foreground());
                    let sent = match (group, *pid) {
                        (Some(group), _) => kill_process_group(group, signal),
                        (None, Some(pid)) => kill_process(pid, signal),
                        (None, None) => return Err(ControlError::Ended),
                    };
                    sent.map_err(|error| ControlError::Io(error.into()))
                }
                Scope::Tree => {
                    let mark = mark.clone();
                    let signalling = tokio::task::spawn_blocking(move || {
                        if signal == Signal::KILL {
                            tree::kill_marked(&mark);
                        } else {
                            tree::signal_marked(&mark, signal);
                        }
                    });
                    signalling
                        .await
                        .map_err(|error| ControlError::Io(io::Error::other(error)))
                }
            },
        }
    }
}

impl ProcessControl for FakeControl {
    fn wait(&self) -> BoxFuture<'_, Exit> {
        let mut exit_status = self.token.program.exit();
        Box::pin(self.token.link.life.live(async move {
            match exit_status.wait_for(Option::is_some).await {
                Ok(ended) => ended.clone().unwrap_or(exit(ExitStatus::BoxGone)),
                // The sender is part of the program.
                Err(_) => exit(ExitStatus::BoxGone),
            }
        }))
    }

    fn signal(&self, number: i32, scope: Scope) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(self.token.link.life.live(self.signal(number, scope)))
    }

    fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        let terminal = self.token.program.terminal.as_ref();
        let terminal = terminal.ok_or(ControlError::NoTerminal)?;
        terminal.resize(size).map_err(ControlError::Io)
    }
}

/// Input that is written before the program has its controlling terminal would be lost. `env` and `setsid` run before
/// the program to set it, because without `unsafe` no code can run between fork and exec.
pub(super) async fn until_on_terminal(program: &Program) {
    let Some(terminal) = &program.terminal else {
        return;
    };
    for _ in 0..1000 {
        if terminal.foreground().is_some() || !program.is_running() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
