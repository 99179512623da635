//! A box before it is one: empty namespaces, limits' groups joined, init waiting for its plan.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use boxwood_init::{Channel, ToSpawner};
use boxwood_policy::BoxUser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use crate::Shared;
use crate::cgroup::Group;
use crate::live_mount::Doors;
use crate::mapping::BoxIds;
use crate::net::{NetLease, PastaLease};
use crate::spawner::Born;
use crate::watched::watch;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A way out of either kind; let go of when the box goes.
pub(crate) enum WayOut {
    Veth(NetLease),
    Pasta(PastaLease),
}

/// What has to be cleared away when a box goes. Dropping it kills the box and clears what can be
/// cleared without waiting; [`Remains::clear`] is the thorough way.
pub(crate) struct Remains {
    pub(crate) name: String,
    pub(crate) init: Pid,
    pub(crate) pidfd: AsyncFd<OwnedFd>,
    pub(crate) group: Option<Group>,
    pub(crate) ids: BoxIds,
    pub(crate) way_out: std::sync::Mutex<Option<WayOut>>,
    doors: std::sync::Mutex<Option<Arc<Doors>>>,
}

pub(crate) struct Blank {
    pub(crate) remains: Remains,
    pub(crate) channel: Channel,
    pub(crate) user: BoxUser,
}

/// A box's name, unique on this host: who made it, and the how manieth it was.
fn next_name() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("b{}-{number}", std::process::id())
}

/// Whether the process that made the box called `name` is dead.
pub(crate) fn is_stale(name: &str) -> bool {
    let maker = name.strip_prefix('b').and_then(|rest| rest.split_once('-'));
    let pid = maker.and_then(|(pid, _)| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

impl Blank {
    /// Makes one on a blocking thread.
    pub(crate) async fn make(shared: &Arc<Shared>, user: BoxUser) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let shared = Arc::clone(shared);
        tokio::task::spawn_blocking(move || {
            // The pidfd is registered with the runtime.
            let _inside = runtime.enter();
            Self::make_blocking(&shared, user)
        })
        .await
        .map_err(io::Error::other)?
    }

    fn make_blocking(shared: &Shared, user: BoxUser) -> io::Result<Self> {
        let ids = shared.mapping.allocate(user)?;
        let (ours, theirs) = Channel::pair()?;
        let owner = ids.namespace_owner();
        let Born { pid, pidfd } = shared.spawner.ask(ToSpawner::Blank { owner }, &theirs)?;
        drop(theirs);
        let mut remains = Remains {
            name: next_name(),
            init: Pid::from_raw(pid).ok_or_else(|| io::Error::other("init has no pid"))?,
            pidfd: watch(pidfd)?,
            group: None,
            ids,
            way_out: std::sync::Mutex::default(),
            doors: std::sync::Mutex::default(),
        };
        // Before the maps: they let init become another, and then only root may look at it.
        // Where even that is forbidden boxes work, and take no mounts later.
        let doors = Doors::open(remains.init)
            .inspect_err(|error| tracing::debug!(%error, "a box's namespaces stay closed"));
        remains.doors = std::sync::Mutex::new(doors.ok().map(Arc::new));
        shared.mapping.write(pid, &remains.ids)?;
        if shared.cgroups.any() {
            let group = Group::create(&shared.cgroups, &remains.name, remains.ids.init_uid)?;
            remains.group.insert(group).add(pid)?;
        }
        Ok(Self {
            remains,
            channel: ours,
            user,
        })
    }
}

impl Remains {
    pub(crate) fn kill(&self) {
        // Failing means that it is dead already.
        let _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
    }

    pub(crate) fn is_alive(&self) -> bool {
        // A pidfd is readable once its process is dead.
        let mut look = [PollFd::new(self.pidfd.get_ref(), PollFlags::IN)];
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut look, Some(&moment)) == Ok(0)
    }

    /// Resolves when init is dead, and with it every process of the box.
    pub(crate) async fn dead(&self) {
        if let Err(error) = self.pidfd.readable().await {
            tracing::warn!(%error, "a box's pidfd could not be watched");
        }
    }

    /// The box's namespaces, while there is a box.
    pub(crate) fn doors(&self) -> Option<Arc<Doors>> {
        let doors = self.doors.lock();
        doors.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the box and removes every trace of it.
    pub(crate) async fn clear(&self) -> io::Result<()> {
        self.kill();
        self.dead().await;
        // With them go its mounts.
        let doors = self.doors.lock();
        drop(doors.unwrap_or_else(PoisonError::into_inner).take());
        let way_out = self
            .way_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(way_out) = way_out {
            tokio::task::spawn_blocking(move || way_out.release())
                .await
                .map_err(io::Error::other)??;
        }
        match &self.group {
            Some(group) => group.remove().await,
            None => Ok(()),
        }
    }
}

impl WayOut {
    fn release(self) -> io::Result<()> {
        match self {
            Self::Veth(lease) => lease.release().map_err(io::Error::other),
            Self::Pasta(lease) => lease.release().map_err(io::Error::other),
        }
    }
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
