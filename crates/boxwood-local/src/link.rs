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

use boxwood_backend::{Exit, ExitStatus, Process, SpawnError};
use boxwood_init::{Channel, ChannelError, EVERYBODY, FromInit, KillScope, ToInit};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use crate::cgroup::{Counters, ExecGroup, Group};
use crate::keeping::{Places, Token};
use crate::process::{self, Control};
use crate::remains::Remains;
use crate::spawner::into_io;
use crate::streams::{Held, Watched};
use crate::watched::watch;

/// The channel to init and everybody who waits on it.
pub struct Link {
    channel: AsyncFd<Channel>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    pub(crate) closed: AtomicBool,
    /// The box outlives this daemon: nothing that is dropped here is told to init any more.
    let_go: watch::Sender<bool>,
    /// The box is not this daemon's yet: nor is anything told so far.
    silent: AtomicBool,
    /// Set before init is asked to hold everybody, cleared when it is told to let them go. And set at
    /// first: an earlier daemon may have asked an init that does not let go by itself. One that holds
    /// nobody does nothing when it is told.
    holds: AtomicBool,
    /// Who waits for everybody to stand still.
    held: Mutex<Option<oneshot::Sender<bool>>>,
}

pub(crate) struct Waiting {
    pub(crate) spawned: Option<oneshot::Sender<Result<Option<OwnedFd>, SpawnError>>>,
    pub(crate) exit: watch::Sender<Option<Exit>>,
    pub(crate) before: Counters,
    pub(crate) group: SharedGroup,
}

/// A program that init was asked to start.
pub(crate) struct Requested {
    pub(crate) id: u64,
    pub(crate) spawned: oneshot::Receiver<Result<Option<OwnedFd>, SpawnError>>,
    pub(crate) unheard: Unheard,
    pub(crate) link: Arc<Link>,
    pub(crate) exit: watch::Receiver<Option<Exit>>,
    pub(crate) group: Held,
    pub(crate) kept: Option<(Places, Arc<Token>)>,
}

impl Requested {
    /// Waits for init's answer. The program may already run, so no error is [`SpawnError::Gone`].
    pub(crate) async fn begun(mut self) -> Result<Spawned, SpawnError> {
        let heard = tokio::time::timeout(DEADLINE, &mut self.spawned).await;
        let heard = heard.map_err(|_| SpawnError::Step {
            step: "hear from init".to_owned(),
            source: io::ErrorKind::TimedOut.into(),
        })?;
        self.unheard.0 = None;
        // It may also have ended before its beginning was heard of; how it did is known then.
        let terminal = heard.unwrap_or(Ok(None))?;
        Ok(Spawned {
            id: self.id,
            link: self.link,
            exit: self.exit,
            group: self.group,
            terminal,
            kept: self.kept,
        })
    }
}

/// A program that init has started.
pub(crate) struct Spawned {
    pub(crate) id: u64,
    pub(crate) link: Arc<Link>,
    pub(crate) exit: watch::Receiver<Option<Exit>>,
    pub(crate) group: Held,
    pub(crate) terminal: Option<OwnedFd>,
    /// Where init keeps it.
    pub(crate) kept: Option<(Places, Arc<Token>)>,
}

impl Spawned {
    /// As the layers above hold it, with our ends of its streams.
    pub(crate) fn into_process(self, ours: Watched) -> io::Result<Process> {
        let Self {
            id,
            link,
            exit,
            group,
            terminal,
            kept,
        } = self;
        let token = kept.map(|(_, token)| token);
        ours.into_process(terminal, token, move |terminal, token| Control {
            id,
            link,
            exit,
            group,
            terminal,
            _token: token,
        })
    }

    /// Whether a program that fell silent ended because its box did. It falls silent first: init waits
    /// for everybody's end before its own.
    pub(crate) async fn went_with_its_box(&self) -> bool {
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
pub(crate) struct Unheard(pub(crate) Option<(SharedGroup, Arc<Link>)>);

/// A program's cgroup, until somebody takes it to give it back.
pub(crate) type SharedGroup = Arc<Mutex<Option<ExecGroup>>>;

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some((group, link)) = &self.0
            && !link.is_let_go()
            && let Some(group) = &*group.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // Failing means that there is nobody in it; whoever is born later is ended when init tells.
            let _ = group.kill();
        }
    }
}

pub(crate) const SIGKILL: i32 = Signal::KILL.as_raw();

/// A signal to every program of the box.
pub(crate) fn everybody(signal: Signal) -> ToInit {
    ToInit::Signal {
        id: EVERYBODY,
        signal: signal.as_raw(),
        scope: KillScope::Tree,
    }
}

impl Link {
    pub fn new(channel: Channel) -> io::Result<Arc<Self>> {
        rustix::io::ioctl_fionbio(&channel, true)?;
        Ok(Arc::new(Self {
            channel: watch(channel)?,
            waiting: Mutex::default(),
            closed: AtomicBool::new(false),
            let_go: watch::channel(false).0,
            silent: AtomicBool::new(false),
            holds: AtomicBool::new(true),
            held: Mutex::default(),
        }))
    }

    /// Init is left alone from now on, and sees this daemon go.
    pub(crate) fn let_go(&self) {
        self.let_go.send_replace(true);
        // What was sent before is still heard. Failing means that init is dead.
        let _ = rustix::net::shutdown(self.channel.get_ref(), rustix::net::Shutdown::Both);
    }

    pub(crate) fn is_let_go(&self) -> bool {
        *self.let_go.borrow()
    }

    /// Whether init is told what is dropped here.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::Release);
    }

    /// Tells init something that nobody waits for.
    pub(crate) fn post(self: &Arc<Self>, message: ToInit) {
        let silent = self.silent.load(Ordering::Acquire) || self.is_let_go();
        if silent || self.closed.load(Ordering::Acquire) {
            return;
        }
        let sent = self.channel.get_ref().send(&message, &[]);
        if let (Err(ChannelError::WouldBlock), Ok(runtime)) =
            (sent, tokio::runtime::Handle::try_current())
        {
            let link = Arc::clone(self);
            runtime.spawn(async move {
                // Failing means that the box is gone, and everything it kept with it.
                let _ = link.send(&message, &[]).await;
            });
        }
    }

    pub async fn send(&self, message: &ToInit, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            match self.channel.get_ref().send(message, fds) {
                Err(ChannelError::WouldBlock) => self.channel.writable().await?.clear_ready(),
                outcome => return outcome.map_err(into_io),
            }
        }
    }

    /// Lets everybody in the box stand still, through init. False where that cannot be done. Whoever stops
    /// waiting has begun it all the same.
    pub(crate) async fn hold(&self) -> io::Result<bool> {
        let (tell, heard) = oneshot::channel();
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
        self.holds.store(true, Ordering::Release);
        self.send(&everybody(Signal::STOP), &[]).await?;
        heard.await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Undoes it. Costs nothing where nobody is held.
    pub(crate) async fn release(&self) -> io::Result<()> {
        if !self.holds.swap(false, Ordering::AcqRel) || self.is_let_go() {
            return Ok(());
        }
        self.send(&everybody(Signal::CONT), &[]).await
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
        let mut let_go = self.let_go.subscribe();
        loop {
            tokio::select! {
                biased;
                () = async { let _ = let_go.wait_for(|let_go| *let_go).await; } => return,
                heard = self.receive() => match heard {
                    Ok((event, fds)) => self.hear(event, fds, &remains).await,
                    Err(_) => break,
                },
                () = remains.dead() => break,
            }
        }
        if self.is_let_go() {
            return;
        }
        // A channel that ended before init did: nothing can be asked of this box any more.
        remains.kill();
        remains.dead().await;
        remains.release_image();
        self.closed.store(true, Ordering::Release);
        let left = std::mem::take(&mut *self.waiting());
        for (_, waiting) in left {
            waiting.exit.send_replace(Some(process::gone()));
            // Init had it, and may have started it: it is one that went with its box, so that nobody
            // runs it again in another.
            if let Some(spawned) = waiting.spawned {
                let _ = spawned.send(Ok(None));
            }
        }
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
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
            FromInit::Held { still } => {
                let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(tell) = held.take() {
                    // Whoever asked may have gone on without.
                    let _ = tell.send(still);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn is_let_go(init: &Channel) -> bool {
        let heard = init.receive::<ToInit>();
        match heard {
            Ok((ToInit::Signal { id, signal, .. }, _)) => {
                id == EVERYBODY && signal == Signal::CONT.as_raw()
            }
            _ => false,
        }
    }

    #[tokio::test]
    async fn whoever_takes_a_box_over_lets_it_go_once() {
        let (ours, init) = Channel::pair().expect("a channel");
        rustix::io::ioctl_fionbio(&init, true).expect("set");
        let link = Link::new(ours).expect("a link");
        link.release().await.expect("told");
        assert!(is_let_go(&init), "what an earlier daemon did is not known");
        link.release().await.expect("nothing to tell");
        assert!(!is_let_go(&init));
    }
}
