//! A command in a box elsewhere, followed to its end over as many connections as it takes.

use std::time::Duration;

use boxwood_api::SessionId;
use boxwood_client::{ClientError, LiveEvent, LiveExec, LiveReceiver, LiveSender, Since};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::failure;
use super::line::Reach;
use crate::boxes::{Answer, BoxesError, Command, Running};
use crate::connector::UnderWay;

/// For a connection that may be dead to let go of the command.
const DETACH: Duration = Duration::from_secs(2);

/// For the runtime to be told that nobody wants the command any more.
const FAREWELL: Duration = Duration::from_secs(2);

/// Between two tries to go on with the command over a connection that is there.
const BREATH: Duration = Duration::from_millis(250);

/// For a runtime to come back, so that a command nobody wants any more can be ended there.
const LAST_WISH: Duration = Duration::from_mins(1);

pub(super) struct Followed {
    reach: Reach,
    session_id: SessionId,
    exec_id: u64,
    /// `None` when it was dropped.
    sender: Option<LiveSender>,
    receiver: LiveReceiver,
    /// How much of each stream was handed on.
    read: [u64; 2],
    /// The connection it is followed on.
    generation: u64,
    /// That connection was let go of because there is a newer one.
    left: bool,
    deadline: Instant,
    within: Duration,
    ended: bool,
    call: Option<UnderWay>,
}

impl Followed {
    pub(super) fn new(reach: &Reach, live: LiveExec, generation: u64, within: Duration) -> Self {
        Self {
            reach: reach.clone(),
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
            call: reach.begin_call(),
        }
    }

    async fn follow(&mut self) -> Answer<Running> {
        loop {
            let renewed = async {
                if self.left {
                    std::future::pending::<()>().await;
                }
                self.reach.renewed(self.generation).await;
            };
            let event = tokio::select! {
                biased;
                event = timeout_at(self.deadline, self.receiver.next()) => event,
                () = renewed => {
                    // Its socket may be dead without knowing. What it has read already is taken first.
                    self.left = true;
                    if let Some(sender) = &mut self.sender {
                        let _ = timeout(DETACH, sender.detach()).await;
                    }
                    continue;
                }
            };
            match event {
                Ok(Ok(event)) => return Ok(self.hand_on(event)),
                Ok(Err(error)) if error.is_of_connection() && self.reach.is_kept() => {
                    self.come_back(error).await?;
                }
                Ok(Err(error)) => return Err(failure::of(error)),
                Err(_) => return Err(failure::late(self.within)),
            }
        }
    }

    fn hand_on(&mut self, event: LiveEvent) -> Running {
        match event {
            LiveEvent::Stdout(bytes) => Running::Stdout(counted(&mut self.read[0], bytes)),
            LiveEvent::Stderr(bytes) => Running::Stderr(counted(&mut self.read[1], bytes)),
            LiveEvent::Exit(exit) => {
                self.ended = true;
                Running::Exited(exit)
            }
        }
    }

    /// Goes on where it was, over the next connection.
    async fn come_back(&mut self, mut lost: ClientError) -> Result<(), BoxesError> {
        loop {
            let line = self.reach.next_line(self.deadline).await?;
            let [stdout, stderr] = self.read.map(Since::Offset);
            let resumed = line
                .client
                .resume_exec(&self.session_id, self.exec_id, stdout, stderr);
            match timeout_at(self.deadline, resumed).await {
                Ok(Ok(live)) => {
                    self.sender = Some(live.sender);
                    self.receiver = live.receiver;
                    self.generation = line.generation;
                    self.left = false;
                    return Ok(());
                }
                Ok(Err(error)) if error.is_of_connection() => lost = error,
                Ok(Err(error)) => return Err(failure::of(error)),
                Err(_) => return Err(failure::of(lost)),
            }
            if timeout_at(self.deadline, sleep(BREATH)).await.is_err() {
                return Err(failure::of(lost));
            }
        }
    }
}

fn counted(read: &mut u64, bytes: Bytes) -> Bytes {
    *read += bytes.len() as u64;
    bytes
}

impl Command for Followed {
    fn next(&mut self) -> BoxFuture<'_, Answer<Running>> {
        Box::pin(self.follow())
    }
}

/// Nobody wants it any more, so it ends. The call is under way until the runtime was told. That a
/// connection is lost may be known to nobody yet, so it is told once more, as a request that is answered.
impl Drop for Followed {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let Some(mut sender) = self.sender.take().filter(|_| !self.ended) else {
            return;
        };
        let (reach, call) = (self.reach.clone(), self.call.take());
        let (id, exec_id) = (self.session_id.clone(), self.exec_id);
        runtime.spawn(async move {
            let _ = timeout(FAREWELL, sender.stop()).await;
            drop(call);
            let _ = timeout(LAST_WISH, end_it(&reach, &id, exec_id)).await;
        });
    }
}

async fn end_it(reach: &Reach, id: &SessionId, exec_id: u64) {
    loop {
        let Ok(line) = reach.next_line(Instant::now() + LAST_WISH).await else {
            return;
        };
        match line.client.kill_exec(id, exec_id).await {
            Err(error) if error.is_of_connection() => sleep(BREATH).await,
            // It is dead, or there is no such command any more.
            Ok(()) | Err(_) => return,
        }
    }
}
