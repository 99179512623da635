//! What there is of a box on the host, and how it is cleared away.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use boxwood_backend::BoxFuture;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use crate::cgroup::Group;
use crate::live_mount::Doors;
use crate::mapping::BoxIds;
use crate::watched::watch;
use crate::way_out::WayOut;

/// What the maker of a box keeps of it besides its processes: a container's record, a directory.
pub trait Shell: Send + Sync {
    /// Removes it. The box's processes are dead by then. Idempotent.
    fn remove(&self) -> BoxFuture<'_, io::Result<()>>;
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

    pub fn kill(&self) {
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
        self.kill();
        self.dead().await;
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
