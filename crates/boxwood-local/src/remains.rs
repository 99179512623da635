//! What there is of a box on the host, and how it is cleared away.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use boxwood_backend::{BoxFuture, BoxHandle, ControlError, SpawnError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use crate::cgroup::Group;
use crate::door::Door;
use crate::images::ImageLease;
use crate::live_mount::Doors;
use crate::mapping::BoxIds;
use crate::watched::watch;
use crate::way_out::{WayOut, WayOutRecord};

/// What the maker of a box keeps of it besides its processes: a container's record, a directory.
pub trait Shell: Send + Sync {
    /// Removes it. The box's processes are dead by then. Idempotent.
    fn remove(&self) -> BoxFuture<'_, io::Result<()>>;

    /// What the next daemon needs to make the same of it. Null where there is nothing to tell.
    fn record(&self) -> serde_json::Value;

    /// The box outlives this daemon: dropping this must remove nothing from now on.
    fn let_go(&self);
}

/// What has to be cleared away when a box goes. Dropping it kills the box and clears what can be
/// cleared without waiting; [`Remains::clear`] is the thorough way.
pub struct Remains {
    pub name: String,
    pub init: Pid,
    pub pidfd: AsyncFd<OwnedFd>,
    pub group: Option<Group>,
    pub ids: BoxIds,
    way_out: Mutex<Option<WayOut>>,
    doors: Mutex<Option<Arc<Doors>>>,
    shell: Option<Box<dyn Shell>>,
    /// `None`: the box ends with its channel.
    door: Mutex<Option<Door>>,
    /// The image that the box runs from, held by a lock on the open directory.
    image: Mutex<Option<OwnedFd>>,
    /// The box is not this daemon's any more: nothing here ends or removes anything.
    let_go: AtomicBool,
}

impl Remains {
    /// Needs a Tokio runtime: the pidfd is watched.
    pub fn new(name: String, init: i32, pidfd: OwnedFd, ids: BoxIds) -> io::Result<Self> {
        Ok(Self {
            name,
            init: Pid::from_raw(init).ok_or_else(|| io::Error::other("init has no pid"))?,
            pidfd: watch(pidfd)?,
            group: None,
            ids,
            way_out: Mutex::default(),
            doors: Mutex::default(),
            shell: None,
            door: Mutex::default(),
            image: Mutex::default(),
            let_go: AtomicBool::new(false),
        })
    }

    #[must_use]
    pub fn with_shell(mut self, shell: Box<dyn Shell>) -> Self {
        self.shell = Some(shell);
        self
    }

    pub fn set_doors(&mut self, doors: Doors) {
        self.doors = Mutex::new(Some(Arc::new(doors)));
    }

    pub(crate) fn set_way_out(&self, way_out: WayOut) {
        *lock(&self.way_out) = Some(way_out);
    }

    pub(crate) fn way_out_record(&self) -> Option<WayOutRecord> {
        lock(&self.way_out).as_ref().map(WayOut::record)
    }

    pub(crate) fn shell_record(&self) -> serde_json::Value {
        let shell = self.shell.as_ref();
        shell.map_or(serde_json::Value::Null, |shell| shell.record())
    }

    pub(crate) fn set_door(&self, door: Door) {
        *lock(&self.door) = Some(door);
    }

    /// How the next daemon finds the box.
    pub(crate) fn handle(&self) -> Option<BoxHandle> {
        lock(&self.door).as_ref().map(|door| door.handle.clone())
    }

    /// Nobody removes the image under a living box.
    pub fn hold_image(&self, lease: ImageLease) {
        self.hold_image_directory(lease.into_held());
    }

    pub(crate) fn hold_image_directory(&self, held: OwnedFd) {
        *lock(&self.image) = Some(held);
    }

    pub(crate) fn image_directory(&self) -> io::Result<Option<OwnedFd>> {
        let held = lock(&self.image);
        held.as_ref()
            .map(|held| held.as_fd().try_clone_to_owned())
            .transpose()
    }

    pub(crate) fn release_image(&self) {
        drop(lock(&self.image).take());
    }

    /// The box outlives this daemon.
    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
        if let Some(door) = &*lock(&self.door) {
            door.let_go();
        }
        if let Some(way_out) = lock(&self.way_out).take() {
            way_out.let_go();
        }
        if let Some(shell) = &self.shell {
            shell.let_go();
        }
    }

    /// For a box that is being taken over, and is its last daemon's until that is done.
    pub(crate) fn let_go_until_held(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    pub(crate) fn hold(&self) {
        if let Some(door) = &*lock(&self.door) {
            door.hold();
        }
        self.let_go.store(false, Ordering::Release);
    }

    pub(crate) fn is_let_go(&self) -> bool {
        self.let_go.load(Ordering::Acquire)
    }

    pub fn kill(&self) {
        if self.is_let_go() {
            return;
        }
        // Failing means that it is dead already.
        let _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
    }

    pub fn is_alive(&self) -> bool {
        // A pidfd is readable once its process is dead.
        let mut look = [PollFd::new(self.pidfd.get_ref(), PollFlags::IN)];
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut look, Some(&moment)) == Ok(0)
    }

    /// What failed with a box that went meanwhile failed because it went: its cgroups go with it, and
    /// they go before the daemon's other tasks have heard of it.
    pub(crate) fn spawn_failed(&self, step: &str, source: io::Error) -> SpawnError {
        if !self.is_alive() {
            return SpawnError::Gone;
        }
        SpawnError::Step {
            step: step.to_owned(),
            source,
        }
    }

    pub(crate) fn control_failed(&self, source: io::Error) -> ControlError {
        if self.is_alive() {
            ControlError::Io(source)
        } else {
            ControlError::Gone
        }
    }

    /// Resolves when init is dead, and with it every process of the box.
    pub async fn dead(&self) {
        if let Err(error) = self.pidfd.readable().await {
            tracing::warn!(%error, "a box's pidfd could not be watched");
        }
    }

    /// The box's namespaces, while there is a box.
    pub fn doors(&self) -> Option<Arc<Doors>> {
        lock(&self.doors).clone()
    }

    /// Kills the box and removes every trace of it.
    pub async fn clear(&self) -> io::Result<()> {
        if self.is_let_go() {
            return Ok(());
        }
        self.kill();
        self.dead().await;
        drop(lock(&self.door).take());
        self.release_image();
        // With them go its mounts.
        drop(lock(&self.doors).take());
        let way_out = lock(&self.way_out).take();
        let unplugged = match way_out {
            Some(way_out) => tokio::task::spawn_blocking(move || way_out.release())
                .await
                .map_err(io::Error::other)
                .flatten(),
            None => Ok(()),
        };
        let ungrouped = match &self.group {
            Some(group) => group.remove().await,
            None => Ok(()),
        };
        let removed = match &self.shell {
            Some(shell) => shell.remove().await,
            None => Ok(()),
        };
        unplugged.and(ungrouped).and(removed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Remains {
    fn drop(&mut self) {
        if self.is_let_go() {
            return;
        }
        self.kill();
        // A thread of its own would be needed to wait; the kernel needs a moment to let go of the
        // dead, so try for one.
        if let Some(group) = &self.group {
            for _ in 0..50 {
                if group.try_remove() {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}
