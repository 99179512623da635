//! The handle of one server: its state, and the command channel of its supervisor.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::state::{RunState, ServerState, StopCause};
use crate::hosting::HostingError;
use crate::hosting::cache::install::Reuse;
use crate::hosting::process::server::Server;

pub(crate) type Reply = oneshot::Sender<Result<(), HostingError>>;

/// Answered when the operation has begun, or when it is complete for `Stop` and `Remove`.
pub(crate) enum Command {
    Start(Reply),
    Stop(Reply),
    Restart(Reply, Reuse),
    /// A call needs the server. Starts it if it is idle.
    StartIdle,
    /// The definition was updated.
    Changed(Reply),
    /// Removes all data of the server. The supervisor accepts no further commands.
    Remove(Reply),
}

impl Command {
    pub(crate) fn refuse(self, error: HostingError) {
        match self {
            Self::StartIdle => {}
            Self::Start(reply)
            | Self::Stop(reply)
            | Self::Restart(reply, _)
            | Self::Changed(reply)
            | Self::Remove(reply) => send_reply(reply, Err(error)),
        }
    }
}

/// Replies to a command. The caller may no longer be waiting.
pub(crate) fn send_reply(reply: Reply, result: Result<(), HostingError>) {
    drop(reply.send(result));
}

/// Allowance for the time between two attempts.
const MARGIN: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct ServerHandle {
    pub(crate) state: Arc<ServerState>,
    pub(crate) commands: mpsc::Sender<Command>,
}

impl ServerHandle {
    pub(crate) async fn command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), HostingError>>) -> Command,
    ) -> Result<(), HostingError> {
        let (reply, replied) = oneshot::channel();
        let sent = self.commands.send(command(reply)).await;
        sent.map_err(|_| HostingError::Closing)?;
        replied.await.unwrap_or(Err(HostingError::Closing))
    }

    /// Does not count as use of the server.
    pub(crate) fn connected(&self) -> Option<Server> {
        let live = self.state.live()?;
        Some(Server::new(Arc::clone(&self.state), live))
    }

    /// Waits until the server is connected. Time spent waiting for other servers does not count.
    pub(crate) async fn server(&self) -> Result<Server, HostingError> {
        let name = || self.state.name.clone();
        let mut changes = self.state.watch();
        let seconds = self.state.spec().settings.startup_timeout_sec;
        let mut remaining = Duration::from_secs(seconds.min(24 * 3600)) + MARGIN;
        // Returned instead of a timeout, because it names the cause.
        let mut last_fault = None;
        loop {
            changes.borrow_and_update();
            let run_state = self.state.run_state();
            let is_limited = match &run_state {
                RunState::Queued => false,
                // The first attempt has its own timeout, which does not count waiting for other servers.
                RunState::Connecting => last_fault.is_some(),
                _ => true,
            };
            let is_queued = matches!(run_state, RunState::Queued);
            match run_state {
                RunState::Connected(live) => {
                    self.state.touch();
                    return Ok(Server::new(Arc::clone(&self.state), live));
                }
                RunState::Disabled => return Err(HostingError::Disabled { name: name() }),
                RunState::Stopped(StopCause::Requested) => {
                    return Err(HostingError::Stopped { name: name() });
                }
                RunState::Failed(fault) => return Err(fault.into()),
                RunState::Stopped(StopCause::Idle) => {
                    let sent = self.commands.send(Command::StartIdle).await;
                    sent.map_err(|_| HostingError::Closing)?;
                }
                RunState::RetryWait { fault, .. } => last_fault = Some(fault),
                RunState::Queued | RunState::Connecting => {}
            }
            let waiting_since = Instant::now();
            let limit = if is_limited { remaining } else { Duration::MAX };
            let Ok(changed) = tokio::time::timeout(limit, changes.changed()).await else {
                let timed_out = HostingError::TimedOut {
                    name: name(),
                    seconds,
                    phase: self.state.progress_log.phase(),
                };
                return Err(last_fault.map_or(timed_out, HostingError::from));
            };
            changed.map_err(|_| HostingError::Closing)?;
            if !is_queued {
                remaining = remaining.saturating_sub(waiting_since.elapsed());
            }
        }
    }
}
