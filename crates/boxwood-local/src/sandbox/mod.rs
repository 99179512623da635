//! A running box on this host: its programs, files, mounts, and its removal.
//!
//! Implements [`Sandbox`] on top of an init that has carried out its plan. Timeouts and output limits
//! belong to the layers above.

pub(crate) mod link;
pub(crate) mod resources;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use boxwood_api::IsolationLabel;
use boxwood_backend::{
    BoxFuture, ControlError, FileAnswer, FileCall, FileError, FileFault, MountError, Process,
    Sandbox, SpawnError, SpawnRequest, Stdio, StopError,
};
use boxwood_init::{ALL_PROGRAMS, KillScope, Program, Spawn, ToInit};
use boxwood_policy::AdmittedMount;
use rustix::process::Signal;
use tokio::sync::{Notify, oneshot, watch};

use crate::adopt::framed;
use crate::adopt::kept_program::{KeepGuard, Note, StreamIndexes};
use crate::adopt::record::BoxRecord;
use crate::cgroup::{ExecGroup, Group};
use crate::files;
use crate::host::LocalHost;
use crate::host::activity::LastActivity;
use crate::mounts::live as live_mount;
use crate::process::streams;
use crate::process::streams::GroupGuard;
use crate::sandbox::link::{KillOnAbandon, Link, PendingProgram, Requested, Spawned, signal};
use crate::sandbox::resources::BoxResources;
use crate::start::StartedInit;

/// What init keeps of a program for the next daemon.
pub(crate) struct KeepRequest<'a> {
    pub(crate) indexes: StreamIndexes,
    pub(crate) fds: Vec<BorrowedFd<'a>>,
    pub(crate) note: &'a [u8],
}

/// A box behind an engine's connection, to which descriptors cannot be passed.
pub struct Relayed {
    /// False if the kernel under the box has no usable terminals.
    pub terminals: bool,
    /// Notified after a terminal was resized.
    pub resized: Arc<Notify>,
}

pub struct LocalBox {
    resources: Arc<BoxResources>,
    label: IsolationLabel,
    link: Arc<Link>,
    next: AtomicU64,
    gone: watch::Receiver<bool>,
    stopping: tokio::sync::Mutex<bool>,
    last_activity: Arc<LastActivity>,
    /// Paths that Landlock lets commands write to; empty without Landlock.
    writable_paths: Vec<String>,
    relayed: Option<Relayed>,
    /// Weak, because the host outlives its boxes.
    host: Weak<LocalHost>,
    /// Held while a mount is added.
    mounting: Arc<tokio::sync::Mutex<()>>,
}

impl LocalBox {
    pub fn new(
        resources: Arc<BoxResources>,
        label: IsolationLabel,
        init: StartedInit,
        host: &Arc<LocalHost>,
    ) -> Self {
        let link = init.link;
        let (gone_sender, gone) = watch::channel(false);
        tokio::spawn(Arc::clone(&link).receive_loop(Arc::clone(&resources), gone_sender));
        Self {
            resources,
            label,
            link,
            next: AtomicU64::new(first_number()),
            gone,
            stopping: tokio::sync::Mutex::new(false),
            last_activity: Arc::clone(&host.last_activity),
            writable_paths: init.writable_paths,
            relayed: None,
            host: Arc::downgrade(host),
            mounting: Arc::default(),
        }
    }

    /// Marks the box as one to which descriptors cannot be passed.
    #[must_use]
    pub fn relayed(mut self, relayed: Relayed) -> Self {
        // Set once: the box has just been created.
        let _ = self.link.resized.set(Arc::clone(&relayed.resized));
        self.relayed = Some(relayed);
        self
    }

    /// Runs to the end on a blocking thread, so that a cancelled caller does not leave an incomplete mount.
    async fn add_mount(&self, mount: &AdmittedMount) -> Result<(), MountError> {
        live_mount::check_writable(&self.writable_paths, mount)?;
        let host = self.host.upgrade().ok_or(MountError::Gone)?;
        if !self.is_running() {
            return Err(MountError::Gone);
        }
        self.last_activity.touch();
        let active_work = host.active_work.enter();
        let guard = Arc::clone(&self.mounting).lock_owned().await;
        let (resources, owned_mount) = (Arc::clone(&self.resources), mount.clone());
        let work = move || {
            let outcome = live_mount::mount(&host, &resources, &owned_mount);
            drop((guard, active_work));
            outcome
        };
        let outcome = tokio::task::spawn_blocking(work).await;
        outcome.unwrap_or_else(|error| {
            let error = io::Error::other(error);
            Err(live_mount::failed(mount, "run the mount helper", error))
        })
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
        self.request(program, fds, None).await?.started().await
    }

    /// Sends init the request to start a program. It may have started when this returns.
    async fn request(
        &self,
        program: Program,
        fds: Vec<OwnedFd>,
        keep: Option<KeepRequest<'_>>,
    ) -> Result<Requested, SpawnError> {
        let failed = |step: &'static str| move |source| self.resources.spawn_failed(step, source);
        if !self.is_running() {
            return Err(SpawnError::Gone);
        }
        self.last_activity.touch();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // File operations need no group: they end by themselves and start no processes.
        let group = match (&self.resources.group, &program) {
            (Some(group), Program::Command { .. }) => group
                .exec_group()
                .map_err(failed("create a cgroup for the program"))?,
            _ => None,
        };
        // Released when the last clone is dropped, on every return path.
        let group = GroupGuard::new(group, Arc::clone(&self.resources));
        let directory = group.with(|group| Arc::clone(&group.directory));
        let counters = self.resources.group.as_ref().map(Group::counters);
        let before = counters.unwrap_or_default();
        let mut borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let cgroup = directory.as_ref().map(|directory| {
            borrowed.push(directory.as_fd());
            borrowed.len() - 1
        });
        let retain = match &keep {
            Some(keep) => {
                let note = Note {
                    places: keep.indexes,
                    group: group.with(ExecGroup::name).flatten(),
                    before,
                };
                let first = borrowed.len();
                borrowed.extend_from_slice(&keep.fds);
                Some(boxwood_init::Retain {
                    note: framed::pack(&note, keep.note)
                        .map_err(failed("encode the note of the program"))?,
                    fds: (first..borrowed.len()).collect(),
                })
            }
            None => None,
        };
        let (spawned_sender, spawned) = oneshot::channel();
        let (exit_sender, exit) = watch::channel(None);
        let pending = PendingProgram {
            spawned: Some(spawned_sender),
            exit: exit_sender,
            before,
            group: group.share(),
        };
        self.link.pending().insert(id, pending);
        // From here on init may have started the program, even if this call fails.
        let kept_streams = keep.map(|keep| (keep.indexes, KeepGuard::new(id, &self.link)));
        let message = ToInit::Spawn(Spawn {
            id,
            program,
            cgroup,
            retain,
        });
        let sent = if self.is_running() {
            self.link.send(&message, &borrowed).await
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        };
        if let Err(error) = sent {
            drop(self.link.pending().remove(&id));
            return Err(match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SpawnError::Gone,
                // The daemon lacks a resource; the box itself is fine.
                _ => failed("send the program to init")(error),
            });
        }
        let kill_on_abandon = KillOnAbandon(Some((group.share(), Arc::clone(&self.link))));
        Ok(Requested {
            program: Spawned {
                id,
                link: Arc::clone(&self.link),
                exit,
                group,
                terminal: None,
                kept_streams,
            },
            reply: spawned,
            kill_on_abandon,
        })
    }

    /// Encodes the record that init keeps for the next daemon.
    fn record(&self, sessions: &[u8]) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut fds = Vec::new();
        let namespaces = match self.resources.namespaces() {
            Some(namespaces) => Some(namespaces.add_to(&mut fds)?),
            None => None,
        };
        let image = match self.resources.image_directory()? {
            Some(directory) => {
                fds.push(directory);
                Some(fds.len() - 1)
            }
            None => None,
        };
        let header = BoxRecord {
            backend: self.label.backend.clone(),
            name: self.resources.name.clone(),
            label: self.label.clone(),
            writable_paths: self.writable_paths.clone(),
            ids: self.resources.ids.record(),
            group: self.resources.group.as_ref().map(Group::record),
            outbound: self.resources.outbound_record(),
            backend_state: self.resources.backend_record(),
            namespaces,
            image,
        };
        Ok((framed::pack(&header, sessions)?, fds))
    }
}

/// Programs are numbered from the nanoseconds since boot. Numbers of earlier daemons are lower, so init's
/// messages about their programs match none of ours.
fn first_number() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

impl Sandbox for LocalBox {
    fn id(&self) -> &str {
        &self.resources.name
    }

    fn label(&self) -> &IsolationLabel {
        &self.label
    }

    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>> {
        Box::pin(async move {
            let no_terminals = self
                .relayed
                .as_ref()
                .is_some_and(|relayed| !relayed.terminals);
            if no_terminals && matches!(request.stdio, Stdio::Terminal(_)) {
                return Err(SpawnError::Step {
                    step: "open a terminal (not supported by this backend)".to_owned(),
                    source: io::ErrorKind::Unsupported.into(),
                });
            }
            let streams::Prepared {
                program,
                child_fds,
                pipes,
                keep,
            } = streams::prepare(request, self.resources.ids.owner())?;
            // Without a recovery socket the box ends with the daemon, so nothing has to be kept.
            let keep = keep.filter(|_| self.resources.is_adoptable());
            let keep_request = keep.as_ref().map(|keep| {
                let (indexes, fds) = streams::kept_fds(pipes.as_ref(), keep);
                KeepRequest {
                    indexes,
                    fds,
                    note: &keep.note,
                }
            });
            let requested = self.request(program, child_fds, keep_request).await?;
            // Registered while init starts the program.
            let kept_streams = requested.program.kept_streams.as_ref();
            let streams = pipes.map(|pipes| pipes.register(kept_streams)).transpose();
            let streams = streams.map_err(streams::step)?;
            let spawned = requested.started().await?;
            let id = spawned.id;
            match spawned.into_process(streams) {
                Ok(process) => Ok(process),
                Err(error) => {
                    // The caller gets no handle, so the program would never be stopped.
                    self.link.kill_abandoned(id).await;
                    Err(streams::step(error))
                }
            }
        })
    }

    fn file(&self, call: FileCall) -> BoxFuture<'_, Result<FileAnswer, FileError>> {
        // File tools return bytes instead of descriptors, so they work in relayed boxes too.
        if self.relayed.is_none() || matches!(call, FileCall::Tool(_)) {
            return Box::pin(files::call(self, call));
        }
        Box::pin(async move {
            if !self.is_running() {
                return Err(FileError::Gone);
            }
            Err(FileError::Fault {
                fault: FileFault::Other,
                path: call.path().to_owned(),
                text: "this backend does not support file operations because descriptors cannot be passed; \
                       use a command instead"
                    .to_owned(),
            })
        })
    }

    fn mount<'a>(&'a self, mount: &'a AdmittedMount) -> BoxFuture<'a, Result<(), MountError>> {
        if self.relayed.is_some() {
            return Box::pin(async { Err(MountError::Unsupported) });
        }
        Box::pin(self.add_mount(mount))
    }

    fn is_alive(&self) -> bool {
        self.is_running()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        let mut gone = self.gone.clone();
        let link = Arc::clone(&self.link);
        Box::pin(async move {
            // An error means that the receive loop ended: with the box, or because the box was detached and
            // its end will not be reported.
            let reported = gone.wait_for(|gone| *gone).await.is_ok();
            if !reported && link.is_detached() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn remember<'a>(&'a self, record: &'a [u8]) -> BoxFuture<'a, Result<(), ControlError>> {
        Box::pin(async move {
            if !self.resources.is_adoptable() {
                return Ok(());
            }
            let (record, fds) = self.record(record).map_err(ControlError::Io)?;
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            let sent = self
                .link
                .send(&ToInit::SetRecord { record }, &borrowed)
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

    fn detach(&self) {
        // A box without a recovery socket cannot be adopted; `stop` stops it.
        if self.resources.is_adoptable() {
            self.resources.detach();
            self.link.detach();
        }
    }

    fn freeze(&self) -> BoxFuture<'_, Result<bool, ControlError>> {
        Box::pin(async move {
            let Some(group) = &self.resources.group else {
                return Ok(false);
            };
            if !self.is_running() {
                return Err(ControlError::Gone);
            }
            let resources = Arc::clone(&self.resources);
            let frozen = group.freeze().await;
            let frozen = frozen.map_err(|error| resources.control_failed(error))?;
            if frozen {
                // In the background: thawing the box meanwhile is allowed.
                tokio::task::spawn_blocking(move || {
                    let bytes = resources.group.as_ref().map_or(0, Group::reclaim_memory);
                    tracing::debug!(
                        name = resources.name,
                        bytes,
                        "reclaimed memory of a frozen box"
                    );
                });
            }
            Ok(frozen)
        })
    }

    fn thaw(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            match &self.resources.group {
                Some(group) if group.kills() => group.thaw().await,
                Some(_) | None => Ok(()),
            }
            .map_err(|error| self.resources.control_failed(error))
        })
    }

    fn kill_all(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            if !self.is_running() {
                return Err(ControlError::Gone);
            }
            if let Some(group) = &self.resources.group
                && group.kills()
            {
                let killed = group.kill_all();
                return killed.map_err(|error| self.resources.control_failed(error));
            }
            let message = signal(ALL_PROGRAMS, Signal::KILL, KillScope::Tree);
            let sent = self.link.send(&message, &[]).await;
            sent.map_err(|_| ControlError::Gone)
        })
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>> {
        Box::pin(async move {
            let mut stopped = self.stopping.lock().await;
            if *stopped || self.link.is_detached() {
                return Ok(());
            }
            self.resources.kill();
            // Waits for a mount in progress, which fails now and closes the box's namespaces.
            let _quiet = self.mounting.lock().await;
            let cleared = self.resources.clear().await;
            // Later requests fail with `Gone`.
            let _ = self.gone.clone().wait_for(|gone| *gone).await;
            cleared.map_err(|source| StopError {
                step: "clean up its resources".to_owned(),
                source,
            })?;
            *stopped = true;
            Ok(())
        })
    }
}

impl Drop for LocalBox {
    fn drop(&mut self) {
        if *self.stopping.get_mut() || self.link.is_detached() {
            return;
        }
        // The box was not stopped. Cleanup waits for the kernel, so it runs in a task. Without a runtime
        // `BoxResources::drop` does what is possible without waiting.
        self.resources.kill();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let resources = Arc::clone(&self.resources);
            let active_work = self.host.upgrade().map(|host| host.active_work.enter());
            runtime.spawn(async move {
                if let Err(error) = resources.clear().await {
                    tracing::warn!(%error, name = resources.name, "failed to clean up a dropped box");
                }
                drop(active_work);
            });
        }
    }
}
