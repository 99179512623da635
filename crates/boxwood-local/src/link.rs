//! The daemon's end of the channel to one init.
//!
//! Comes in: programs to start. Goes out: how they began and ended. Never here: the bytes they read
//! and write, and what they are for.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_backend::{Exit, SpawnError};
use boxwood_init::{Channel, ChannelError, FromInit, KillScope, ToInit};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use crate::cgroup::{Counters, ExecGroup, Group};
use crate::process;
use crate::remains::Remains;
use crate::spawner::into_io;
use crate::watched::watch;

/// The channel to init and everybody who waits on it.
pub struct Link {
    channel: AsyncFd<Channel>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    pub(crate) closed: AtomicBool,
}

pub(crate) struct Waiting {
    pub(crate) spawned: Option<oneshot::Sender<Result<Option<OwnedFd>, SpawnError>>>,
    pub(crate) exit: watch::Sender<Option<Exit>>,
    pub(crate) before: Counters,
    pub(crate) group: Arc<Mutex<Option<ExecGroup>>>,
}

/// A program that init has started.
pub(crate) struct Spawned {
    pub(crate) id: u64,
    pub(crate) link: Arc<Link>,
    pub(crate) exit: watch::Receiver<Option<Exit>>,
    pub(crate) group: Arc<Mutex<Option<ExecGroup>>>,
    pub(crate) terminal: Option<OwnedFd>,
}

impl Spawned {
    pub(crate) async fn kill(&self) {
        let message = ToInit::Signal {
            id: self.id,
            signal: SIGKILL,
            scope: KillScope::Process,
        };
        let _ = self.link.send(&message, &[]).await;
    }
}

/// How long init may take to start a program. Generous: a box can be short of processor time.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// Ends a command that init was asked for when nobody waits for it any more. From the moment it has
/// the box's uid the box can stop it, and init waits until it is another program or dead: without
/// this, one `SIGSTOP` at the right time would hold init for good.
pub(crate) struct Unheard(pub(crate) Option<Arc<Mutex<Option<ExecGroup>>>>);

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(group) = &self.0
            && let Some(group) = &*group.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // Failing means that there is nobody in it; whoever is born later is ended when init tells.
            let _ = group.kill();
        }
    }
}

const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

impl Link {
    pub fn new(channel: Channel) -> io::Result<Arc<Self>> {
        rustix::io::ioctl_fionbio(&channel, true)?;
        Ok(Arc::new(Self {
            channel: watch(channel)?,
            waiting: Mutex::default(),
            closed: AtomicBool::new(false),
        }))
    }

    pub async fn send(&self, message: &ToInit, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            match self.channel.get_ref().send(message, fds) {
                Err(ChannelError::WouldBlock) => self.channel.writable().await?.clear_ready(),
                outcome => return outcome.map_err(into_io),
            }
        }
    }

    pub async fn receive(&self) -> io::Result<(FromInit, Vec<OwnedFd>)> {
        loop {
            let mut ready = self.channel.readable().await?;
            match self.channel.get_ref().receive() {
                Err(ChannelError::WouldBlock) => ready.clear_ready(),
                outcome => return outcome.map_err(into_io),
            }
        }
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears init out until the box is gone. Everybody who still waits then is told.
    pub(crate) async fn listen(self: Arc<Self>, remains: Arc<Remains>, gone: watch::Sender<bool>) {
        loop {
            tokio::select! {
                biased;
                heard = self.receive() => match heard {
                    Ok((event, fds)) => self.hear(event, fds, &remains).await,
                    Err(_) => break,
                },
                () = remains.dead() => break,
            }
        }
        // A channel that ended before init did: nothing can be asked of this box any more.
        remains.kill();
        remains.dead().await;
        self.closed.store(true, Ordering::Release);
        let left = std::mem::take(&mut *self.waiting());
        for (_, waiting) in left {
            if let Some(spawned) = waiting.spawned {
                let _ = spawned.send(Err(SpawnError::Gone));
            }
            waiting.exit.send_replace(Some(process::gone()));
        }
        gone.send_replace(true);
    }

    async fn hear(&self, event: FromInit, mut fds: Vec<OwnedFd>, remains: &Remains) {
        match event {
            FromInit::Spawned { id } => {
                let spawned = self
                    .waiting()
                    .get_mut(&id)
                    .and_then(|waiting| waiting.spawned.take());
                let unheard = match spawned {
                    Some(spawned) => spawned.send(Ok(fds.pop())).is_err(),
                    None => false,
                };
                if unheard {
                    // Whoever asked went away; nobody will ever end this program.
                    self.end_unheard(id).await;
                }
            }
            FromInit::SpawnFailed { id, step, errno } => {
                if let Some(waiting) = self.waiting().remove(&id) {
                    give_back(&waiting.group, remains);
                    if let Some(spawned) = waiting.spawned {
                        let _ = spawned.send(Err(spawn_error(step, errno)));
                    }
                }
            }
            FromInit::Exited { id, ended } => {
                let Some(waiting) = self.waiting().remove(&id) else {
                    return;
                };
                let after = remains
                    .group
                    .as_ref()
                    .map(Group::counters)
                    .unwrap_or_default();
                let exit = process::exit(ended, waiting.before, after);
                waiting.exit.send_replace(Some(exit));
                // The tree of a program that left children behind can still be killed, until its
                // last handle goes.
                if Arc::strong_count(&waiting.group) == 1 {
                    give_back(&waiting.group, remains);
                }
            }
            // Said once, at the start.
            FromInit::Ready { .. }
            | FromInit::PlanFailed { .. }
            | FromInit::Hello { .. }
            | FromInit::Kept { .. } => {}
        }
    }

    async fn end_unheard(&self, id: u64) {
        let group = self
            .waiting()
            .get(&id)
            .map(|waiting| Arc::clone(&waiting.group));
        let killed = group.is_some_and(|group| {
            let group = group.lock().unwrap_or_else(PoisonError::into_inner);
            group.as_ref().is_some_and(|group| group.kill().is_ok())
        });
        if !killed {
            let message = ToInit::Signal {
                id,
                signal: SIGKILL,
                scope: KillScope::Tree,
            };
            let _ = self.send(&message, &[]).await;
        }
    }
}

fn give_back(group: &Mutex<Option<ExecGroup>>, remains: &Remains) {
    let group = group.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Some(group), Some(of)) = (group, &remains.group) {
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
