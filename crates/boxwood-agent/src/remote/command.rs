//! A command in a box of a remote daemon. The client resumes it after a lost connection.

use std::time::Duration;

use async_trait::async_trait;
use boxwood_client::{Client, LiveEvent, LiveExec};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::failure;
use crate::boxes::{Answer, Command, Running};

/// Timeout for telling the runtime to end the command.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for a lost runtime to return, to end the command there.
const KILL_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) struct RemoteExec {
    pub(super) client: Client,
    /// `None` after its end.
    pub(super) live: Option<LiveExec>,
    pub(super) deadline: Instant,
    pub(super) within: Duration,
    pub(super) call: Option<TaskTrackerToken>,
}

#[async_trait]
impl Command for RemoteExec {
    async fn next(&mut self) -> Answer<Running> {
        let Some(live) = &mut self.live else {
            return std::future::pending().await;
        };
        match timeout_at(self.deadline, live.receiver.next()).await {
            Ok(Ok(LiveEvent::Stdout(bytes))) => Ok(Running::Stdout(bytes)),
            Ok(Ok(LiveEvent::Stderr(bytes))) => Ok(Running::Stderr(bytes)),
            Ok(Ok(LiveEvent::Exit(exit))) => {
                self.live = None;
                Ok(Running::Exited(exit))
            }
            Ok(Err(error)) => Err(failure::of(error)),
            Err(_) => Err(failure::late(self.within)),
        }
    }
}

/// Ends the command. The call counts as running until the runtime has received this. The connection may be lost without notice, so
/// the command is also ended by a request that gets a response.
impl Drop for RemoteExec {
    fn drop(&mut self) {
        let (Ok(runtime), Some(mut live)) =
            (tokio::runtime::Handle::try_current(), self.live.take())
        else {
            return;
        };
        let (client, call) = (self.client.clone(), self.call.take());
        runtime.spawn(async move {
            let _ = timeout(STOP_TIMEOUT, live.sender.stop()).await;
            drop(call);
            let kill = || client.kill_exec(&live.session_id, live.exec_id);
            // An error means that it has ended, or does not exist any more.
            let _ = timeout(KILL_TIMEOUT, client.with_retries(kill)).await;
        });
    }
}
