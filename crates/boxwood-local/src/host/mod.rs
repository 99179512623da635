//! State shared by all backends on this machine.

pub(crate) mod activity;
pub(crate) mod instance;
mod leftovers;
pub(crate) mod names;
pub(crate) mod settings;
pub(crate) mod spawner;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_backend::{BoxHandle, StartError, start_step};

use crate::adopt::recovery_socket;
use crate::cgroup::Cgroups;
use crate::host::activity::{ActiveWork, LastActivity};
use crate::host::instance::Instance;
use crate::host::settings::{Kind, Settings};
use crate::host::spawner::Spawner;
use crate::ids::{BoxIds, Mapping};
use crate::lock;
use crate::mounts::idmap;
use crate::network::OutboundNetwork;
use crate::start::bootstrap::BootstrapDir;

/// This daemon's instance, its spawner, and the host's resources for boxes. Every backend joins; when the
/// last one leaves, everything is released.
pub struct LocalHost {
    instance: Instance,
    pub spawner: Spawner,
    pub mapping: Mapping,
    pub cgroups: Cgroups,
    pub outbound: OutboundNetwork,
    /// The kernel supports Landlock and it is enabled.
    pub landlock: bool,
    /// Work that a shutdown waits for.
    pub active_work: ActiveWork,
    /// Time of the last request to any box.
    pub last_activity: Arc<LastActivity>,
    pub state_dir: PathBuf,
    /// How long boxes wait for the next daemon; `None` if they end with this process.
    pub(crate) grace: Option<Duration>,
    /// Directory of the recovery sockets.
    pub(crate) recovery_dir: PathBuf,
    pub(crate) inherited: Inherited,
    members: AtomicUsize,
}

/// Boxes of earlier daemons of this instance.
pub(crate) struct Inherited {
    /// Names with this number or a higher one were given by this host.
    since: u64,
    /// Names of adopted boxes and of their bootstrap directories.
    adopted: Mutex<BTreeSet<String>>,
    /// Backends that have finished adoption.
    pub(crate) finished: Mutex<BTreeSet<String>>,
}

impl Inherited {
    pub(crate) fn adopt(&self, name: &str) {
        lock(&self.adopted).insert(name.to_owned());
    }

    /// Returns true if `name` belongs to a box of this host.
    pub(crate) fn is_wanted(&self, name: &str) -> bool {
        names::is_from_this_run(name, self.since) || lock(&self.adopted).contains(name)
    }
}

impl LocalHost {
    /// Starts the spawner and inspects the host. Must be called before the process has threads, because
    /// the spawner is a fork.
    pub fn launch(settings: &Settings) -> Result<Arc<Self>, StartError> {
        let instance = Instance::claim(settings)?;
        let mapping = Mapping::detect()?;
        let recovery_dir = recovery_socket::directory(&settings.run_dir, &instance.name);
        if settings.kind == Kind::Daemon {
            mapping.reserve_live();
        }
        let cgroups = Cgroups::detect(&instance.name, &mapping)?;
        let outbound = OutboundNetwork::new(&instance.name, settings, mapping.is_root());
        let spawner = Spawner::start().map_err(start_step("start the spawner"))?;
        Ok(Arc::new(Self {
            instance,
            spawner,
            mapping,
            cgroups,
            outbound,
            landlock: boxwood_sys::landlock::abi_version().is_some(),
            active_work: ActiveWork::new(),
            last_activity: Arc::new(LastActivity::new()),
            state_dir: settings.state_dir.clone(),
            grace: match settings.kind {
                Kind::Daemon => Some(settings.grace),
                Kind::Single => None,
            },
            recovery_dir,
            inherited: Inherited {
                since: names::next_number(),
                adopted: Mutex::default(),
                finished: Mutex::default(),
            },
            members: AtomicUsize::new(0),
        }))
    }

    /// Instance name: stable across restarts on the same state directory, and not shared.
    pub fn instance(&self) -> &str {
        &self.instance.name
    }

    /// Creates a user namespace with the maps of a box, for an engine to create the rest in. Blocks for
    /// about a millisecond.
    pub fn user_namespace(&self, ids: &BoxIds) -> std::io::Result<OwnedFd> {
        let map = |pid| self.mapping.write(pid, ids);
        idmap::user_namespace(&self.spawner, ids.namespace_owner(), map)
    }

    /// The boxes of one backend that may still be running, from their recovery sockets.
    pub fn recovery_sockets(&self, backend: &str) -> Vec<BoxHandle> {
        recovery_socket::of_backend(&self.recovery_dir, backend)
    }

    /// Marks a new box as owned, so that the cleanup after adoption keeps it.
    pub(crate) fn mark_owned(&self, name: &str) {
        let adopting = lock(&self.inherited.finished).len() < self.members();
        if adopting && !self.inherited.is_wanted(name) {
            self.inherited.adopt(name);
        }
    }

    /// Number of backends that use this host.
    pub(crate) fn members(&self) -> usize {
        self.members.load(Ordering::Acquire)
    }

    /// Registers a backend.
    pub fn join(&self) {
        self.members.fetch_add(1, Ordering::AcqRel);
    }

    /// Unregisters a backend whose boxes are stopped or detached.
    pub async fn leave(&self) {
        self.active_work.idle().await;
        if self.members.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.spawner.end().await;
            self.cgroups.remove_base();
            self.outbound.close();
            recovery_socket::remove_directory(&self.recovery_dir);
            BootstrapDir::remove_parent(self);
        }
    }
}
