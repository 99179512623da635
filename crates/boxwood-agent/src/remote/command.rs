//! A command in a box of a remote daemon. It is resumed after a lost connection.

use std::time::Duration;

use async_trait::async_trait;
use boxwood_api::SessionId;
use boxwood_client::{ClientError, LiveEvent, LiveExec, LiveReceiver, LiveSender, Since};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connector::{Connector, RunningCall};
use super::failure;
use crate::boxes::{Answer, BoxesError, Command, Running};

/// Timeout for detaching on a connection that may be dead.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for telling the runtime to end the command.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two attempts to resume the command.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// How long to wait for a lost runtime to return, to end the command there.
const RECONNECT_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) struct RemoteExec {
    connector: Connector,
    session_id: SessionId,
    exec_id: u64,
    /// `None` after the drop.
    sender: Option<LiveSender>,
    receiver: LiveReceiver,
    /// Bytes of each stream that were forwarded.
    read: [u64; 2],
    /// The connection in use.
    generation: u64,
    /// That connection was closed because there is a newer one.
    left: bool,
    deadline: Instant,
    within: Duration,
    ended: bool,
    call: Option<RunningCall>,
}

impl RemoteExec {
    pub(super) fn new(
        connector: &Connector,
        live: LiveExec,
        generation: u64,
        within: Duration,
    ) -> Self {
        Self {
            connector: connector.clone(),
            session_id: live.session_id,
            exec_id: live.exec_id,
            sender: Some(live.sender),
            receiver: live.receiver,
            read: [0; 2],
            generation,
            left: false,
            deadline: Instant::now() + within,
            within,
            ended: false,
            call: Some(connector.begin_call()),
        }
    }

    async fn follow(&mut self) -> Answer<Running> {
        loop {
            let renewed = async {
                if self.left {
                    std::future::pending::<()>().await;
                }
                self.connector.reconnected(self.generation).await;
            };
            let event = tokio::select! {
                biased;
                event = timeout_at(self.deadline, self.receiver.next()) => event,
                () = renewed => {
                    // The socket of the old connection may be dead without notice. Output that was already received is read first.
                    self.left = true;
                    if let Some(sender) = &mut self.sender {
                        let _ = timeout(DETACH_TIMEOUT, sender.detach()).await;
                    }
                    continue;
                }
            };
            match event {
                Ok(Ok(event)) => return Ok(self.forward(event)),
                Ok(Err(error)) if error.is_connection_error() => {
                    self.resume(error).await?;
                }
                Ok(Err(error)) => return Err(failure::of(error)),
                Err(_) => return Err(failure::late(self.within)),
            }
        }
    }

    fn forward(&mut self, event: LiveEvent) -> Running {
        match event {
            LiveEvent::Stdout(bytes) => Running::Stdout(counted(&mut self.read[0], bytes)),
            LiveEvent::Stderr(bytes) => Running::Stderr(counted(&mut self.read[1], bytes)),
            LiveEvent::Exit(exit) => {
                self.ended = true;
                Running::Exited(exit)
            }
        }
    }

    /// Resumes the command over the next connection.
    async fn resume(&mut self, mut lost: ClientError) -> Result<(), BoxesError> {
        loop {
            let connection = self.connector.next_connection(self.deadline).await?;
            let [stdout, stderr] = self.read.map(Since::Offset);
            let resumed =
                connection
                    .client
                    .resume_exec(&self.session_id, self.exec_id, stdout, stderr);
            match timeout_at(self.deadline, resumed).await {
                Ok(Ok(live)) => {
                    self.sender = Some(live.sender);
                    self.receiver = live.receiver;
                    self.generation = connection.generation;
                    self.left = false;
                    return Ok(());
                }
                Ok(Err(error)) if error.is_connection_error() => lost = error,
                Ok(Err(error)) => return Err(failure::of(error)),
                Err(_) => return Err(failure::of(lost)),
            }
            if timeout_at(self.deadline, sleep(RETRY_DELAY)).await.is_err() {
                return Err(failure::of(lost));
            }
        }
    }
}

fn counted(read: &mut u64, bytes: Bytes) -> Bytes {
    *read += bytes.len() as u64;
    bytes
}

#[async_trait]
impl Command for RemoteExec {
    async fn next(&mut self) -> Answer<Running> {
        self.follow().await
    }
}

/// Ends the command. The call counts as running until the runtime has received this. The connection may be lost without notice, so
/// the command is also ended by a request that gets a response.
impl Drop for RemoteExec {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let Some(mut sender) = self.sender.take().filter(|_| !self.ended) else {
            return;
        };
        let (connector, call) = (self.connector.clone(), self.call.take());
        let (id, exec_id) = (self.session_id.clone(), self.exec_id);
        runtime.spawn(async move {
            let _ = timeout(STOP_TIMEOUT, sender.stop()).await;
            drop(call);
            let _ = timeout(RECONNECT_TIMEOUT, stop_command(&connector, &id, exec_id)).await;
        });
    }
}

async fn stop_command(connector: &Connector, id: &SessionId, exec_id: u64) {
    loop {
        let Ok(connection) = connector
            .next_connection(Instant::now() + RECONNECT_TIMEOUT)
            .await
        else {
            return;
        };
        match connection.client.kill_exec(id, exec_id).await {
            Err(error) if error.is_connection_error() => sleep(RETRY_DELAY).await,
            // It has ended, or does not exist any more.
            Ok(()) | Err(_) => return,
        }
    }
}
