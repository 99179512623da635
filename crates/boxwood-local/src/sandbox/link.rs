//! The daemon's end of the channel to one init.
//!
//! Sends requests to start programs and receives their start and exit. The programs' input and output do not
//! pass through it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use boxwood_backend::{Copied, Exit, ExitStatus, Process, SpawnError};
use boxwood_init::{Channel, ChannelError, FromInit, KillScope, ToInit};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::empty;
use tokio::sync::{Notify, oneshot, watch};

use crate::adopt::kept_program::{KeepGuard, StreamIndexes};
use crate::cgroup::{Counters, ExecGroup, Group};
use crate::lock;
use crate::process;
use crate::process::async_fd::AsyncChannel;
use crate::process::streams::{GroupGuard, Streams};
use crate::sandbox::resources::BoxResources;

/// The channel to init and the programs that it has not reported as exited.
pub(crate) struct Link {
    channel: AsyncChannel,
    pending: Mutex<HashMap<u64, PendingProgram>>,
    pub(crate) closed: AtomicBool,
    /// The box outlives this daemon: drops are no longer reported to init.
    detached: watch::Sender<bool>,
    /// The box is not adopted yet: drops are not reported to init.
    muted: AtomicBool,
    /// Notified after a terminal was resized, if the box is relayed.
    pub(crate) resized: OnceLock<Arc<Notify>>,
}

pub(crate) struct PendingProgram {
    pub(crate) spawned: Option<oneshot::Sender<Result<Option<OwnedFd>, SpawnError>>>,
    pub(crate) exit: watch::Sender<Option<Exit>>,
    pub(crate) before: Counters,
    pub(crate) group: SharedGroup,
}

/// A program whose start was requested.
pub(crate) struct Requested {
    /// Without its terminal, which comes with init's reply.
    pub(crate) program: Spawned,
    pub(crate) reply: oneshot::Receiver<Result<Option<OwnedFd>, SpawnError>>,
    pub(crate) kill_on_abandon: KillOnAbandon,
}

impl Requested {
    /// Waits for init's reply. The program may already run, so the error is never [`SpawnError::Gone`].
    pub(crate) async fn started(mut self) -> Result<Spawned, SpawnError> {
        let received = tokio::time::timeout(DEADLINE, &mut self.reply).await;
        let received = received.map_err(|_| SpawnError::Step {
            step: "receive init's reply".to_owned(),
            source: io::ErrorKind::TimedOut.into(),
        })?;
        self.kill_on_abandon.0 = None;
        // The sender is dropped if the program has already exited; `exit` holds its status then.
        self.program.terminal = received.unwrap_or(Ok(None))?;
        Ok(self.program)
    }
}

/// A program that init has started.
pub(crate) struct Spawned {
    pub(crate) id: u64,
    pub(crate) link: Arc<Link>,
    pub(crate) exit: watch::Receiver<Option<Exit>>,
    pub(crate) group: GroupGuard,
    /// The master side of its terminal.
    pub(crate) terminal: Option<OwnedFd>,
    /// Set if init keeps the program for the next daemon, until the last handle is dropped.
    pub(crate) kept_streams: Option<(StreamIndexes, Arc<KeepGuard>)>,
}

impl Spawned {
    /// Builds the process handle for the layers above, with our ends of the streams. `None` for a terminal.
    pub(crate) fn into_process(self, streams: Option<Streams>) -> io::Result<Process> {
        let keep_guard = self.kept_streams.as_ref().map(|(_, keep_guard)| keep_guard);
        let streams = match (streams, &self.terminal) {
            (Some(streams), _) => streams,
            (None, Some(master)) => Streams::of_terminal(master, keep_guard)?,
            // The box ended before init created the terminal.
            (None, None) => Streams::default(),
        };
        Ok(Process {
            stdin: streams.stdin,
            stdout: streams.stdout.unwrap_or_else(|| Box::new(Copied(empty()))),
            stderr: streams.stderr,
            control: Arc::new(self),
        })
    }

    /// Returns true if a program whose streams closed ended because its box did. The streams close first:
    /// init waits for every program to end before it exits.
    pub(crate) async fn ended_with_box(&self) -> bool {
        let mut exit = self.exit.clone();
        let ended = tokio::time::timeout(DEADLINE, exit.wait_for(Option::is_some)).await;
        match ended {
            Ok(Ok(exit)) => exit
                .as_ref()
                .is_some_and(|exit| exit.status == ExitStatus::BoxGone),
            Ok(Err(_)) => true,
            Err(_elapsed) => false,
        }
    }

    pub(crate) async fn kill(&self) {
        let message = signal(self.id, Signal::KILL, KillScope::Process);
        let _ = self.link.send(&message, &[]).await;
    }
}

/// How long init may take to start a program. Long, because a box may have little CPU time.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// Kills a requested command whose caller stopped waiting. As soon as the command has the box's uid, another
/// process of the box can stop it, and init waits until it has called `execve` or died. Without this, one
/// `SIGSTOP` at the right time would block init forever.
pub(crate) struct KillOnAbandon(pub(crate) Option<(SharedGroup, Arc<Link>)>);

/// A program's cgroup; empty once it is released.
pub(crate) type SharedGroup = Arc<Mutex<Option<ExecGroup>>>;

impl Drop for KillOnAbandon {
    fn drop(&mut self) {
        if let Some((group, link)) = &self.0
            && !link.is_detached()
            && let Some(group) = &*lock(group)
        {
            // Fails if the group is empty. A process that joins later is killed on `Spawned`.
            let _ = group.kill();
        }
    }
}

/// A message that signals a program, or every program of the box with [`boxwood_init::ALL_PROGRAMS`].
pub(crate) fn signal(id: u64, signal: Signal, scope: KillScope) -> ToInit {
    ToInit::Signal {
        id,
        signal: signal.as_raw(),
        scope,
    }
}

impl Link {
    pub(crate) fn new(channel: Channel) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            channel: AsyncChannel::new(channel)?,
            resized: OnceLock::new(),
            pending: Mutex::default(),
            closed: AtomicBool::new(false),
            detached: watch::channel(false).0,
            muted: AtomicBool::new(false),
        }))
    }

    /// Closes the channel without stopping the box.
    pub(crate) fn detach(&self) {
        self.detached.send_replace(true);
        // Init still receives messages that were sent before. An error means that init is dead.
        let _ = rustix::net::shutdown(self.channel.channel(), rustix::net::Shutdown::Both);
    }

    pub(crate) fn is_detached(&self) -> bool {
        *self.detached.borrow()
    }

    /// Controls whether drops are reported to init.
    pub(crate) fn set_muted(&self, muted: bool) {
        self.muted.store(muted, Ordering::Release);
    }

    /// Sends a message without waiting for its delivery.
    pub(crate) fn post(self: &Arc<Self>, message: ToInit) {
        let muted = self.muted.load(Ordering::Acquire) || self.is_detached();
        if muted || self.closed.load(Ordering::Acquire) {
            return;
        }
        let sent = self.channel.channel().send(&message, &[]);
        if let (Err(ChannelError::WouldBlock), Ok(runtime)) =
            (sent, tokio::runtime::Handle::try_current())
        {
            let link = Arc::clone(self);
            runtime.spawn(async move {
                // An error means that the box is gone.
                let _ = link.send(&message, &[]).await;
            });
        }
    }

    pub(crate) async fn send(&self, message: &ToInit, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.channel.send(message, fds).await
    }

    pub(crate) async fn receive(&self) -> io::Result<(FromInit, Vec<OwnedFd>)> {
        self.channel.receive().await
    }

    pub(crate) fn pending(&self) -> MutexGuard<'_, HashMap<u64, PendingProgram>> {
        lock(&self.pending)
    }

    /// Receives messages until the box is gone, then completes all pending programs.
    pub(crate) async fn receive_loop(
        self: Arc<Self>,
        resources: Arc<BoxResources>,
        gone: watch::Sender<bool>,
    ) {
        let mut detached = self.detached.subscribe();
        loop {
            tokio::select! {
                biased;
                () = async { let _ = detached.wait_for(|detached| *detached).await; } => return,
                received = self.receive() => match received {
                    Ok((event, fds)) => self.handle(event, fds, &resources).await,
                    Err(_) => break,
                },
                () = resources.dead() => break,
            }
        }
        if self.is_detached() {
            return;
        }
        // Without the channel the box cannot be used, even if init is still running.
        resources.kill();
        resources.dead().await;
        resources.release_image();
        self.closed.store(true, Ordering::Release);
        let programs = std::mem::take(&mut *self.pending());
        for (_, pending) in programs {
            pending.exit.send_replace(Some(process::gone()));
            // Init may have started the program. Reporting it as started and gone prevents a retry in
            // another box.
            if let Some(spawned) = pending.spawned {
                let _ = spawned.send(Ok(None));
            }
        }
        gone.send_replace(true);
    }

    async fn handle(&self, event: FromInit, mut fds: Vec<OwnedFd>, resources: &BoxResources) {
        match event {
            FromInit::Spawned { id } => {
                let spawned = self
                    .pending()
                    .get_mut(&id)
                    .and_then(|pending| pending.spawned.take());
                if spawned.is_some_and(|spawned| spawned.send(Ok(fds.pop())).is_err()) {
                    // The caller is gone, so the program would never be stopped.
                    self.kill_abandoned(id).await;
                }
            }
            FromInit::SpawnFailed { id, step, errno } => {
                if let Some(pending) = self.pending().remove(&id) {
                    release_group(&pending.group, resources);
                    if let Some(spawned) = pending.spawned {
                        let _ = spawned.send(Err(spawn_error(step, errno)));
                    }
                }
            }
            FromInit::Exited { id, ended } => {
                let Some(pending) = self.pending().remove(&id) else {
                    return;
                };
                let after = resources
                    .group
                    .as_ref()
                    .map(Group::counters)
                    .unwrap_or_default();
                let exit = process::exit(ended, pending.before, after);
                pending.exit.send_replace(Some(exit));
                // Children of the program may still run. Its group is needed to kill them until the last
                // handle is dropped.
                if Arc::strong_count(&pending.group) == 1 {
                    release_group(&pending.group, resources);
                }
            }
            // Sent only during the start and adoption.
            FromInit::Ready { .. }
            | FromInit::PlanFailed { .. }
            | FromInit::Hello { .. }
            | FromInit::Retained { .. } => {}
        }
    }

    pub(crate) async fn kill_abandoned(&self, id: u64) {
        let group = self
            .pending()
            .get(&id)
            .map(|pending| Arc::clone(&pending.group));
        let killed = group.is_some_and(|group| {
            let group = lock(&group);
            group.as_ref().is_some_and(|group| group.kill().is_ok())
        });
        if !killed {
            let message = signal(id, Signal::KILL, KillScope::Tree);
            let _ = self.send(&message, &[]).await;
        }
    }
}

pub(crate) fn release_group(group: &Mutex<Option<ExecGroup>>, resources: &BoxResources) {
    let group = lock(group).take();
    if let (Some(group), Some(of)) = (group, &resources.group) {
        of.release(group);
    }
}

fn spawn_error(step: String, errno: i32) -> SpawnError {
    match Errno::from_raw_os_error(errno) {
        Errno::AGAIN => SpawnError::PidsLimit,
        Errno::TOOBIG => SpawnError::TooLong,
        errno => SpawnError::Step {
            step,
            source: errno.into(),
        },
    }
}
