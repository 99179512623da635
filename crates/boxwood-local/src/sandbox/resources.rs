//! The resources of a box on the host and their cleanup.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_backend::{BoxFuture, BoxHandle, ControlError, SpawnError};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use crate::adopt::recovery_socket;
use crate::cgroup::Group;
use crate::ids::BoxIds;
use crate::images::ImageLease;
use crate::lock;
use crate::mounts::live::BoxNamespaces;
use crate::network::outbound::{OutboundLease, OutboundRecord};
use crate::process::async_fd::{async_fd, is_readable};

/// What a backend keeps of a box besides its processes, such as a container or a directory.
pub trait BackendState: Send + Sync {
    /// Removes it. Called after the box's processes are dead. Idempotent.
    fn remove(&self) -> BoxFuture<'_, io::Result<()>>;

    /// What the next daemon needs to rebuild this state; null if nothing.
    fn record(&self) -> serde_json::Value;

    /// The box outlives this daemon: dropping this must not remove anything from now on.
    fn detach(&self);
}

/// Everything that has to be removed with a box. Dropping it kills the box and removes what does not require
/// waiting; [`BoxResources::clear`] removes everything.
pub struct BoxResources {
    pub name: String,
    pub init: Pid,
    pub pidfd: AsyncFd<OwnedFd>,
    pub group: Option<Group>,
    pub ids: BoxIds,
    outbound: Mutex<Option<OutboundLease>>,
    namespaces: Mutex<Option<Arc<BoxNamespaces>>>,
    backend_state: Option<Box<dyn BackendState>>,
    /// How the next daemon finds the box; `None` if the box ends with its channel. The socket is removed with
    /// the box.
    handle: Mutex<Option<BoxHandle>>,
    /// The locked directory of the image that the box runs from.
    image: Mutex<Option<OwnedFd>>,
    /// The box does not belong to this daemon: nothing is killed or removed.
    detached: AtomicBool,
}

impl BoxResources {
    /// Needs a Tokio runtime: the pidfd is watched.
    pub fn new(name: String, init: i32, pidfd: OwnedFd, ids: BoxIds) -> io::Result<Self> {
        Ok(Self {
            name,
            init: Pid::from_raw(init).ok_or_else(|| io::Error::other("init has no pid"))?,
            pidfd: async_fd(pidfd)?,
            group: None,
            ids,
            outbound: Mutex::default(),
            namespaces: Mutex::default(),
            backend_state: None,
            handle: Mutex::default(),
            image: Mutex::default(),
            detached: AtomicBool::new(false),
        })
    }

    #[must_use]
    pub fn with_backend_state(mut self, backend_state: Box<dyn BackendState>) -> Self {
        self.backend_state = Some(backend_state);
        self
    }

    pub fn set_namespaces(&mut self, namespaces: BoxNamespaces) {
        self.namespaces = Mutex::new(Some(Arc::new(namespaces)));
    }

    pub(crate) fn set_outbound(&self, outbound: OutboundLease) {
        *lock(&self.outbound) = Some(outbound);
    }

    pub(crate) fn outbound_record(&self) -> Option<OutboundRecord> {
        lock(&self.outbound).as_ref().map(OutboundLease::record)
    }

    pub(crate) fn backend_record(&self) -> serde_json::Value {
        let state = self.backend_state.as_ref();
        state.map_or(serde_json::Value::Null, |state| state.record())
    }

    pub(crate) fn set_handle(&self, handle: BoxHandle) {
        *lock(&self.handle) = Some(handle);
    }

    /// Returns true if the next daemon can adopt the box.
    pub(crate) fn is_adoptable(&self) -> bool {
        lock(&self.handle).is_some()
    }

    fn remove_recovery_socket(&self) {
        if let Some(handle) = lock(&self.handle).take() {
            recovery_socket::remove(&handle.socket);
        }
    }

    /// Keeps the image from being removed while the box runs.
    pub fn keep_image(&self, lease: ImageLease) {
        self.keep_image_directory(lease.into_lock());
    }

    pub(crate) fn keep_image_directory(&self, directory: OwnedFd) {
        *lock(&self.image) = Some(directory);
    }

    pub(crate) fn image_directory(&self) -> io::Result<Option<OwnedFd>> {
        let directory = lock(&self.image);
        directory
            .as_ref()
            .map(|directory| directory.as_fd().try_clone_to_owned())
            .transpose()
    }

    pub(crate) fn release_image(&self) {
        drop(lock(&self.image).take());
    }

    /// Leaves the box running for the next daemon.
    pub(crate) fn detach(&self) {
        self.set_detached(true);
        if let Some(outbound) = lock(&self.outbound).take() {
            outbound.detach();
        }
        if let Some(state) = &self.backend_state {
            state.detach();
        }
    }

    /// A box is detached until its adoption is complete.
    pub(crate) fn set_detached(&self, detached: bool) {
        self.detached.store(detached, Ordering::Release);
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }

    pub fn kill(&self) {
        if self.is_detached() {
            return;
        }
        // An error means that init is dead already.
        let _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
    }

    pub fn is_alive(&self) -> bool {
        !is_readable(self.pidfd.get_ref(), Duration::ZERO)
    }

    /// An error on a box that has died is reported as [`SpawnError::Gone`]: its cgroups are removed before
    /// other tasks notice its death.
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
            tracing::warn!(%error, "failed to watch the pidfd of a box");
        }
    }

    /// The namespaces of the box, until it is cleared.
    pub fn namespaces(&self) -> Option<Arc<BoxNamespaces>> {
        lock(&self.namespaces).clone()
    }

    /// Removes the box after a failed start.
    pub async fn clear_failed(&self) {
        if let Err(error) = self.clear().await {
            tracing::warn!(%error, name = self.name, "failed to clean up after a failed start");
        }
    }

    /// Kills the box and removes all its resources.
    pub async fn clear(&self) -> io::Result<()> {
        if self.is_detached() {
            return Ok(());
        }
        self.kill();
        self.dead().await;
        self.remove_recovery_socket();
        self.release_image();
        // Closing the namespaces also removes the mounts of the box.
        drop(lock(&self.namespaces).take());
        let outbound = lock(&self.outbound).take();
        let disconnected = match outbound {
            Some(outbound) => tokio::task::spawn_blocking(move || outbound.release())
                .await
                .map_err(io::Error::other)
                .flatten(),
            None => Ok(()),
        };
        let group_removed = match &self.group {
            Some(group) => group.remove().await,
            None => Ok(()),
        };
        let removed = match &self.backend_state {
            Some(state) => state.remove().await,
            None => Ok(()),
        };
        disconnected.and(group_removed).and(removed)
    }
}

impl Drop for BoxResources {
    fn drop(&mut self) {
        if self.is_detached() {
            return;
        }
        self.kill();
        self.remove_recovery_socket();
        // It takes a moment until the processes have left the cgroup. Waiting longer would need a thread.
        if let Some(group) = &self.group {
            for _ in 0..50 {
                if group.try_remove() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
