//! One box: programs, files and mounts in it, and its end.
//!
//! Comes in: an init that has carried out its plan; then programs and file operations. Goes out:
//! processes whose bytes flow through pipes. Never here: timeouts, output limits, names that callers
//! chose.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use boxwood_api::IsolationLabel;
use boxwood_backend::{
    BeingWritten, BoxFuture, ControlError, FileAnswer, FileCall, FileError, MountError, Process,
    Sandbox, SpawnError, SpawnRequest, StopError,
};
use boxwood_init::{Program, Spawn, ToInit};
use boxwood_policy::AdmittedMount;
use rustix::process::Signal;
use tokio::sync::{oneshot, watch};

use crate::busy::{Busy, Pulse};
use crate::cgroup::{ExecGroup, Group};
use crate::host::LocalHost;
use crate::keeping::{Note, Places, Token};
use crate::link::{Link, Requested, Spawned, Unheard, Waiting, everybody};
use crate::record::BoxRecord;
use crate::remains::Remains;
use crate::streams::Held;
use crate::{files, framed, live_mount, open_files, streams};

/// What init is to keep of a program that is to be started.
pub(crate) struct KeepOrder<'a> {
    pub(crate) places: Places,
    pub(crate) fds: Vec<BorrowedFd<'a>>,
    pub(crate) note: &'a [u8],
}

/// A box that is running.
pub struct LocalBox {
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
    /// The host outlives its boxes, and nobody but a new mount needs it.
    host: Weak<LocalHost>,
    /// Held while a mount joins.
    mounting: Arc<tokio::sync::Mutex<()>>,
}

impl LocalBox {
    pub fn new(
        remains: Arc<Remains>,
        label: IsolationLabel,
        link: Arc<Link>,
        fence: Vec<String>,
        host: &Arc<LocalHost>,
    ) -> Self {
        let (tell_gone, gone) = watch::channel(false);
        tokio::spawn(Arc::clone(&link).listen(Arc::clone(&remains), tell_gone));
        Self {
            remains,
            label,
            link,
            next: AtomicU64::new(first_number()),
            gone,
            stopping: tokio::sync::Mutex::new(false),
            busy: host.busy.clone(),
            pulse: Arc::clone(&host.pulse),
            fence,
            host: Arc::downgrade(host),
            mounting: Arc::default(),
        }
    }

    /// In a task of its own: a caller that goes away half-way leaves a mount, not half of one.
    async fn join(&self, mount: &AdmittedMount) -> Result<(), MountError> {
        live_mount::check_fence(&self.fence, mount)?;
        let host = self.host.upgrade().ok_or(MountError::Gone)?;
        if !self.is_running() {
            return Err(MountError::Gone);
        }
        self.pulse.beat();
        let (remains, mount) = (Arc::clone(&self.remains), mount.clone());
        let (mounting, busy) = (Arc::clone(&self.mounting), self.busy.enter());
        let joining = tokio::spawn(async move {
            let _alone = mounting.lock().await;
            let wanted = mount.clone();
            let work = move || live_mount::mount(&host, &remains, &wanted);
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
        fds: Vec<OwnedFd>,
    ) -> Result<Spawned, SpawnError> {
        self.request(program, fds, None).await?.begun().await
    }

    /// Sends init the request to start a program. It may have begun when this returns.
    async fn request(
        &self,
        program: Program,
        fds: Vec<OwnedFd>,
        keep: Option<KeepOrder<'_>>,
    ) -> Result<Requested, SpawnError> {
        let failed = |step: &'static str| move |source| self.remains.spawn_failed(step, source);
        if !self.is_running() {
            return Err(SpawnError::Gone);
        }
        self.pulse.beat();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // A file operation ends by itself and leaves nobody behind.
        let group = match (&self.remains.group, &program) {
            (Some(group), Program::Command { .. }) => {
                group.exec_group().map_err(failed("make its cgroup"))?
            }
            _ => None,
        };
        // Given back by whoever has it last, on every way out of here.
        let group = Held::new(group, Arc::clone(&self.remains));
        let directory = group.with(|group| Arc::clone(&group.directory));
        let counters = self.remains.group.as_ref().map(Group::counters);
        let before = counters.unwrap_or_default();
        let mut borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let cgroup = directory.as_ref().map(|directory| {
            borrowed.push(directory.as_fd());
            borrowed.len() - 1
        });
        let kept = match &keep {
            Some(order) => {
                let name = group.with(ExecGroup::name).flatten();
                let note = Note::new(order.places, name, before);
                let first = borrowed.len();
                borrowed.extend_from_slice(&order.fds);
                Some(boxwood_init::Keep {
                    note: note
                        .pack(order.note)
                        .map_err(failed("write down what it is"))?,
                    fds: (first..borrowed.len()).collect(),
                })
            }
            None => None,
        };
        let (tell_spawned, spawned) = oneshot::channel();
        let (tell_exit, exit) = watch::channel(None);
        let waiting = Waiting {
            spawned: Some(tell_spawned),
            exit: tell_exit,
            before,
            group: group.share(),
        };
        self.link.waiting().insert(id, waiting);
        // From here on init may have it, whatever becomes of this call.
        let kept_as = keep.map(|order| (order.places, Token::new(id, &self.link)));
        let message = ToInit::Spawn(Spawn {
            id,
            program,
            cgroup,
            keep: kept,
        });
        let sent = if self.is_running() {
            self.link.send(&message, &borrowed).await
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        };
        if let Err(error) = sent {
            drop(self.link.waiting().remove(&id));
            return Err(match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SpawnError::Gone,
                // A box that lives does not pay for a daemon that is short of something.
                _ => failed("hand it over to init")(error),
            });
        }
        Ok(Requested {
            id,
            spawned,
            unheard: Unheard(Some((group.share(), Arc::clone(&self.link)))),
            link: Arc::clone(&self.link),
            exit,
            group,
            kept: kept_as,
        })
    }

    /// Everything that init keeps for the next daemon about the box itself.
    fn record(&self, sessions: &[u8]) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut fds = Vec::new();
        let doors = match self.remains.doors() {
            Some(doors) => Some(doors.add_to(&mut fds)?),
            None => None,
        };
        let image = match self.remains.image_directory()? {
            Some(held) => {
                fds.push(held);
                Some(fds.len() - 1)
            }
            None => None,
        };
        let header = BoxRecord {
            backend: self.label.backend.clone(),
            name: self.remains.name.clone(),
            label: self.label.clone(),
            fence: self.fence.clone(),
            ids: self.remains.ids.record(),
            group: self.remains.group.as_ref().map(Group::record),
            way_out: self.remains.way_out_record(),
            shell: self.remains.shell_record(),
            doors,
            image,
        };
        Ok((framed::pack(&header, sessions)?, fds))
    }
}

/// Programs are numbered from the nanoseconds since boot on: an earlier daemon's numbers are all lower,
/// and what init still tells of those programs is about nobody here.
fn first_number() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

impl Sandbox for LocalBox {
    fn id(&self) -> &str {
        &self.remains.name
    }

    fn label(&self) -> &IsolationLabel {
        &self.label
    }

    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>> {
        Box::pin(async move {
            let streams::Prepared {
                program,
                theirs,
                ours,
                keep,
            } = streams::prepare(request, self.remains.ids.owner())?;
            // A box without a door ends with its daemon, and what would be kept with it.
            let keep = keep.filter(|_| self.remains.handle().is_some());
            let order = keep.as_ref().map(|keep| {
                let (places, fds) = ours.kept(keep);
                KeepOrder {
                    places,
                    fds,
                    note: &keep.note,
                }
            });
            let requested = self.request(program, theirs, order).await?;
            // Registered while init starts the program.
            let ours = ours.watch(requested.kept.as_ref()).map_err(streams::step)?;
            let spawned = requested.begun().await?;
            spawned.into_process(ours).map_err(streams::step)
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
        let link = Arc::clone(&self.link);
        Box::pin(async move {
            // An error means that the listener ended: with the box, or because the box was let go of
            // and nobody here will hear of its end.
            let heard = gone.wait_for(|gone| *gone).await.is_ok();
            if !heard && link.is_let_go() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn remember<'a>(&'a self, record: &'a [u8]) -> BoxFuture<'a, Result<(), ControlError>> {
        Box::pin(async move {
            if self.remains.handle().is_none() {
                return Ok(());
            }
            let (record, fds) = self.record(record).map_err(ControlError::Io)?;
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            let sent = self
                .link
                .send(&ToInit::Remember { record }, &borrowed)
                .await;
            sent.map_err(|error| {
                if self.is_running() && error.kind() != io::ErrorKind::BrokenPipe {
                    ControlError::Io(error)
                } else {
                    ControlError::Gone
                }
            })
        })
    }

    fn let_go(&self) {
        // A box that nobody can find again is stopped instead.
        if self.remains.handle().is_some() {
            self.remains.let_go();
            if let Some(group) = &self.remains.group {
                group.let_go();
            }
            self.link.let_go();
        }
    }

    fn freeze(&self) -> BoxFuture<'_, Result<bool, ControlError>> {
        Box::pin(async move {
            let Some(group) = &self.remains.group else {
                return Ok(false);
            };
            if !self.is_running() {
                return Err(ControlError::Gone);
            }
            let remains = Arc::clone(&self.remains);
            let frozen = group.freeze().await;
            let frozen = frozen.map_err(|error| remains.control_failed(error))?;
            if frozen {
                // Nobody waits for it: a box that is thawed meanwhile pays for what it lost.
                tokio::task::spawn_blocking(move || {
                    let bytes = remains.group.as_ref().map_or(0, Group::give_memory_back);
                    tracing::debug!(name = remains.name, bytes, "a frozen box gave memory back");
                });
            }
            Ok(frozen)
        })
    }

    fn hold(&self) -> BoxFuture<'_, Result<bool, ControlError>> {
        Box::pin(async move {
            if !self.is_running() {
                return Err(ControlError::Gone);
            }
            match &self.remains.group {
                Some(group) if group.kills() => group.hold(|| self.remains.is_let_go()).await,
                // Init lets everybody go by itself when this daemon lets go of the box.
                Some(_) | None => self.link.hold().await,
            }
            .map_err(|error| self.remains.control_failed(error))
        })
    }

    fn thaw(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            match &self.remains.group {
                Some(group) if group.kills() => group.thaw().await,
                Some(_) | None => self.link.release().await,
            }
            .map_err(|error| self.remains.control_failed(error))
        })
    }

    fn kill_all(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            if !self.is_running() {
                return Err(ControlError::Gone);
            }
            if let Some(group) = &self.remains.group
                && group.kills()
            {
                let killed = group.kill_all();
                return killed.map_err(|error| self.remains.control_failed(error));
            }
            let sent = self.link.send(&everybody(Signal::KILL), &[]).await;
            sent.map_err(|_| ControlError::Gone)
        })
    }

    fn unlinked_bytes(&self, device: u64) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let init = self.remains.init.as_raw_nonzero().get();
            let looking =
                tokio::task::spawn_blocking(move || open_files::unlinked_bytes(init, device));
            looking.await.unwrap_or(0)
        })
    }

    fn being_written(&self, device: u64, watched: &mut HashSet<i32>) -> BeingWritten {
        let told = match &self.remains.group {
            Some(group) if group.kills() => group.told_to_stop(),
            Some(_) | None => open_files::told_to_stop(self.remains.init.as_raw_nonzero().get()),
        };
        open_files::being_written(told, device, watched)
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>> {
        Box::pin(async move {
            let mut stopped = self.stopping.lock().await;
            if *stopped || self.link.is_let_go() {
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

impl Drop for LocalBox {
    fn drop(&mut self) {
        if *self.stopping.get_mut() || self.link.is_let_go() {
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
