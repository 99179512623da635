//! One native box: its start, its channel to init, its end.
//!
//! Comes in: an admitted spec; then programs and file operations. Goes out: processes whose bytes
//! flow through pipes. Never here: timeouts, output limits, names that callers chose.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use boxwood_api::IsolationLabel;
use boxwood_backend::{
    BoxFuture, Exit, FileAnswer, FileCall, FileError, MountError, Process, Sandbox, SpawnError,
    SpawnRequest, StopError,
};
use boxwood_init::{Channel, ChannelError, FromInit, KillScope, Program, Spawn, ToInit};
use boxwood_policy::AdmittedMount;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use crate::blank::Remains;
use crate::busy::{Busy, Pulse};
use crate::cgroup::{Counters, ExecGroup};
use crate::process::{self, Control};
use crate::spawner::into_io;
use crate::watched::watch;
use crate::{Shared, files, live_mount, streams};

pub(crate) struct NativeSandbox {
    remains: Arc<Remains>,
    label: IsolationLabel,
    link: Arc<Link>,
    next: AtomicU64,
    gone: watch::Receiver<bool>,
    stopping: tokio::sync::Mutex<bool>,
    busy: Busy,
    pulse: Arc<Pulse>,
    /// Where Landlock lets commands write; empty without it.
    fence: Vec<String>,
    /// The backend outlives its boxes, and nobody but a new mount needs it.
    shared: Weak<Shared>,
    /// Held while a mount joins.
    mounting: Arc<tokio::sync::Mutex<()>>,
}

/// The channel to init and everybody who waits on it.
pub(crate) struct Link {
    channel: AsyncFd<Channel>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    closed: AtomicBool,
}

struct Waiting {
    spawned: Option<oneshot::Sender<Result<Option<OwnedFd>, SpawnError>>>,
    exit: watch::Sender<Option<Exit>>,
    before: Counters,
    group: Arc<Mutex<Option<ExecGroup>>>,
}

/// A program that init has started.
pub(crate) struct Spawned {
    id: u64,
    link: Arc<Link>,
    exit: watch::Receiver<Option<Exit>>,
    group: Arc<Mutex<Option<ExecGroup>>>,
    terminal: Option<OwnedFd>,
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
const DEADLINE: Duration = Duration::from_mins(1);

/// Ends a command that init was asked for when nobody waits for it any more. From the moment it has
/// the box's uid the box can stop it, and init waits until it is another program or dead: without
/// this, one `SIGSTOP` at the right time would hold init for good.
struct Unheard(Option<Arc<Mutex<Option<ExecGroup>>>>);

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
    pub(crate) fn new(channel: Channel) -> io::Result<Arc<Self>> {
        rustix::io::ioctl_fionbio(&channel, true)?;
        Ok(Arc::new(Self {
            channel: watch(channel)?,
            waiting: Mutex::default(),
            closed: AtomicBool::new(false),
        }))
    }

    pub(crate) async fn send(&self, message: &ToInit, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            match self.channel.get_ref().send(message, fds) {
                Err(ChannelError::WouldBlock) => self.channel.writable().await?.clear_ready(),
                outcome => return outcome.map_err(into_io),
            }
        }
    }

    pub(crate) async fn receive(&self) -> io::Result<(FromInit, Vec<OwnedFd>)> {
        loop {
            let mut ready = self.channel.readable().await?;
            match self.channel.get_ref().receive() {
                Err(ChannelError::WouldBlock) => ready.clear_ready(),
                outcome => return outcome.map_err(into_io),
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears init out until the box is gone. Everybody who still waits then is told.
    async fn listen(self: Arc<Self>, remains: Arc<Remains>, gone: watch::Sender<bool>) {
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
            FromInit::Exited {
                id,
                status,
                denied_syscall,
                disk_full,
            } => {
                let Some(waiting) = self.waiting().remove(&id) else {
                    return;
                };
                let after = remains
                    .group
                    .as_ref()
                    .map(crate::cgroup::Group::counters)
                    .unwrap_or_default();
                let exit = process::exit(status, waiting.before, after, denied_syscall, disk_full);
                waiting.exit.send_replace(Some(exit));
                // The tree of a program that left children behind can still be killed, until its
                // last handle goes.
                if Arc::strong_count(&waiting.group) == 1 {
                    give_back(&waiting.group, remains);
                }
            }
            // Said once, at the start.
            FromInit::Ready { .. } | FromInit::PlanFailed { .. } => {}
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

impl NativeSandbox {
    pub(crate) fn new(
        remains: Remains,
        label: IsolationLabel,
        link: Arc<Link>,
        fence: Vec<String>,
        shared: &Arc<Shared>,
    ) -> Self {
        let remains = Arc::new(remains);
        let (tell_gone, gone) = watch::channel(false);
        tokio::spawn(Arc::clone(&link).listen(Arc::clone(&remains), tell_gone));
        Self {
            remains,
            label,
            link,
            next: AtomicU64::new(1),
            gone,
            stopping: tokio::sync::Mutex::new(false),
            busy: shared.busy.clone(),
            pulse: Arc::clone(&shared.pulse),
            fence,
            shared: Arc::downgrade(shared),
            mounting: Arc::default(),
        }
    }

    /// In a task of its own: a caller that goes away half-way leaves a mount, not half of one.
    async fn join(&self, mount: &AdmittedMount) -> Result<(), MountError> {
        live_mount::check_fence(&self.fence, mount)?;
        let shared = self.shared.upgrade().ok_or(MountError::Gone)?;
        if !self.is_running() {
            return Err(MountError::Gone);
        }
        self.pulse.beat();
        let (remains, mount) = (Arc::clone(&self.remains), mount.clone());
        let (mounting, busy) = (Arc::clone(&self.mounting), self.busy.enter());
        let joining = tokio::spawn(async move {
            let _alone = mounting.lock().await;
            let wanted = mount.clone();
            let work = move || live_mount::mount(&shared, &remains, &wanted);
            let outcome = tokio::task::spawn_blocking(work).await;
            drop(busy);
            outcome.unwrap_or_else(|error| {
                Err(live_mount::failed(
                    &mount,
                    "run the mounter",
                    io::Error::other(error),
                ))
            })
        });
        joining.await.unwrap_or(Err(MountError::Gone))
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.link.closed.load(Ordering::Acquire)
    }

    /// Starts a program with the descriptors it names.
    pub(crate) async fn spawn_program(
        &self,
        program: Program,
        mut fds: Vec<OwnedFd>,
    ) -> Result<Spawned, SpawnError> {
        let step = |step: &'static str| {
            move |source: io::Error| SpawnError::Step {
                step: step.to_owned(),
                source,
            }
        };
        if !self.is_running() {
            return Err(SpawnError::Gone);
        }
        self.pulse.beat();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // A file operation ends by itself and leaves nobody behind.
        let group = match (&self.remains.group, &program) {
            (Some(group), Program::Command { .. }) => {
                group.exec_group().map_err(step("make its cgroup"))?
            }
            _ => None,
        };
        let cgroup = match &group {
            Some(group) => {
                let directory = group.directory.as_fd().try_clone_to_owned();
                fds.push(directory.map_err(step("hand over its cgroup"))?);
                Some(fds.len() - 1)
            }
            None => None,
        };
        let group = Arc::new(Mutex::new(group));
        let (tell_spawned, spawned) = oneshot::channel();
        let (tell_exit, exit) = watch::channel(None);
        let counters = self
            .remains
            .group
            .as_ref()
            .map(crate::cgroup::Group::counters);
        let waiting = Waiting {
            spawned: Some(tell_spawned),
            exit: tell_exit,
            before: counters.unwrap_or_default(),
            group: Arc::clone(&group),
        };
        self.link.waiting().insert(id, waiting);
        let message = ToInit::Spawn(Spawn {
            id,
            program,
            cgroup,
        });
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let sent = if self.is_running() {
            self.link.send(&message, &borrowed).await
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        };
        if sent.is_err() {
            self.link.waiting().remove(&id);
            return Err(SpawnError::Gone);
        }
        drop(fds);
        let mut unheard = Unheard(Some(Arc::clone(&group)));
        let heard = tokio::time::timeout(DEADLINE, spawned)
            .await
            .map_err(|_| step("hear from init")(io::ErrorKind::TimedOut.into()))?;
        unheard.0 = None;
        let terminal = heard.map_err(|_| SpawnError::Gone)??;
        Ok(Spawned {
            id,
            link: Arc::clone(&self.link),
            exit,
            group,
            terminal,
        })
    }
}

impl Sandbox for NativeSandbox {
    fn id(&self) -> &str {
        &self.remains.name
    }

    fn label(&self) -> &IsolationLabel {
        &self.label
    }

    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>> {
        Box::pin(async move {
            let prepared = streams::prepare(request, self.remains.ids.owner())?;
            let spawned = self
                .spawn_program(prepared.program, prepared.theirs)
                .await?;
            let Spawned {
                id,
                link,
                exit,
                group,
                terminal,
            } = spawned;
            let remains = Arc::clone(&self.remains);
            let control = move |terminal| Control {
                id,
                link,
                exit,
                group: streams::Held::new(group, remains),
                terminal,
            };
            prepared.ours.into_process(terminal, control)
        })
    }

    fn file(&self, call: FileCall) -> BoxFuture<'_, Result<FileAnswer, FileError>> {
        Box::pin(files::call(self, call))
    }

    fn mount<'a>(&'a self, mount: &'a AdmittedMount) -> BoxFuture<'a, Result<(), MountError>> {
        Box::pin(self.join(mount))
    }

    fn is_alive(&self) -> bool {
        self.is_running()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        let mut gone = self.gone.clone();
        Box::pin(async move {
            // An error means that the listener ended, and it only ends with the box.
            let _ = gone.wait_for(|gone| *gone).await;
        })
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>> {
        Box::pin(async move {
            let mut stopped = self.stopping.lock().await;
            if *stopped {
                return Ok(());
            }
            self.remains.kill();
            // A mount under way notices, and lets go of the box's namespaces.
            let _quiet = self.mounting.lock().await;
            let cleared = self.remains.clear().await;
            // Whoever asks something of it from now on is told that it is gone.
            let _ = self.gone.clone().wait_for(|gone| *gone).await;
            cleared.map_err(|source| StopError {
                step: "clear it away".to_owned(),
                source,
            })?;
            *stopped = true;
            Ok(())
        })
    }
}

impl Drop for NativeSandbox {
    fn drop(&mut self) {
        if *self.stopping.get_mut() {
            return;
        }
        // Never stopped. Clearing takes a while, so it is left to a task; without a runtime the
        // last reference does what can be done at once.
        self.remains.kill();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (remains, busy) = (Arc::clone(&self.remains), self.busy.enter());
            runtime.spawn(async move {
                if let Err(error) = remains.clear().await {
                    tracing::warn!(%error, name = remains.name, "a box left something behind");
                }
                drop(busy);
            });
        }
    }
}
