//! What every backend on this machine shares.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use boxwood_backend::{BoxHandle, StartError};

use crate::busy::{Busy, Pulse};
use crate::cgroup::Cgroups;
use crate::idmap;
use crate::instance::Instance;
use crate::mapping::{BoxIds, Mapping};
use crate::meeting::Meeting;
use crate::net::WaysOut;
use crate::settings::{Kind, Settings};
use crate::spawner::Spawner;
use crate::{door, names};

/// Who this daemon is here, its spawner, and what the machine can give to boxes. Every backend is a
/// member; the last one that leaves clears everything away.
pub struct LocalHost {
    instance: Instance,
    pub(crate) spawner: Spawner,
    pub mapping: Mapping,
    pub cgroups: Cgroups,
    pub ways_out: WaysOut,
    /// The kernel has Landlock and it was not switched off at boot.
    pub landlock: bool,
    /// What a shutdown has to wait for.
    pub busy: Busy,
    /// When something was last asked of any box.
    pub pulse: Arc<Pulse>,
    state_dir: PathBuf,
    run_dir: PathBuf,
    /// How long boxes wait for the next daemon; `None` where there is no next one.
    pub(crate) grace: Option<Duration>,
    pub(crate) doors: PathBuf,
    pub(crate) heritage: Heritage,
    members: AtomicUsize,
}

/// What earlier daemons of this instance left here.
pub(crate) struct Heritage {
    /// Names given by this process from here on are this host's.
    since: u64,
    /// Boxes that were taken over, and what else of theirs has a name of its own.
    adopted: Mutex<BTreeSet<String>>,
    /// Backends that are done with adopting.
    pub(crate) settled: Mutex<BTreeSet<String>>,
}

impl Heritage {
    pub(crate) fn adopt(&self, name: &str) {
        lock(&self.adopted).insert(name.to_owned());
    }

    /// Whether something with this name belongs to a box of this host.
    pub(crate) fn is_wanted(&self, name: &str) -> bool {
        names::is_ours(name, self.since) || lock(&self.adopted).contains(name)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalHost {
    /// Starts the spawner and looks at the host. Call it before the process has threads: the
    /// spawner is a fork, and lives as long as this does.
    pub fn launch(settings: &Settings) -> Result<Arc<Self>, StartError> {
        let instance = Instance::claim(settings)?;
        let mapping = Mapping::detect()?;
        let doors = door::directory(&settings.run_dir, &instance.name);
        if settings.kind == Kind::Daemon {
            mapping.spare_the_living();
        }
        let cgroups = Cgroups::detect(&instance.name, &mapping)?;
        let ways_out = WaysOut::new(&instance.name, settings, mapping.is_root());
        let spawner = Spawner::start().map_err(|source| StartError::Step {
            step: "start the spawner".to_owned(),
            source,
        })?;
        Ok(Arc::new(Self {
            instance,
            spawner,
            mapping,
            cgroups,
            ways_out,
            landlock: boxwood_sys::landlock::abi_version().is_some(),
            busy: Busy::new(),
            pulse: Arc::new(Pulse::new()),
            state_dir: settings.state_dir.clone(),
            run_dir: settings.run_dir.clone(),
            grace: match settings.kind {
                Kind::Daemon => Some(settings.grace),
                Kind::Single => None,
            },
            doors,
            heritage: Heritage {
                since: names::given_so_far(),
                adopted: Mutex::default(),
                settled: Mutex::default(),
            },
            members: AtomicUsize::new(0),
        }))
    }

    /// The same after a restart on the same state directory, and nobody else's meanwhile.
    pub fn instance(&self) -> &str {
        &self.instance.name
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Asks the spawner for a process; `inner` is its end of a channel. Blocks for about a
    /// millisecond.
    pub fn ask_spawner(
        &self,
        what: boxwood_init::ToSpawner,
        inner: &boxwood_init::Channel,
    ) -> std::io::Result<crate::Born> {
        self.spawner.ask(what, inner)
    }

    /// A user namespace with the maps of a box, for somebody else to make the rest in. Blocks for about
    /// a millisecond.
    pub fn user_namespace(&self, ids: &BoxIds) -> std::io::Result<OwnedFd> {
        let map = |pid| self.mapping.write(pid, ids);
        idmap::user_namespace(&self.spawner, ids.namespace_owner(), map)
    }

    /// The boxes of one backend that may still be alive, by their doors.
    pub fn doors_of(&self, backend: &str) -> Vec<BoxHandle> {
        door::of_backend(&self.doors, backend)
    }

    /// A box of this host's own, whatever it is called: settling goes by names, and boxes may start
    /// before it.
    pub(crate) fn spare(&self, name: &str) {
        let awaited = lock(&self.heritage.settled).len() < self.members();
        if awaited && !self.heritage.is_wanted(name) {
            self.heritage.adopt(name);
        }
    }

    /// How many backends use this host.
    pub(crate) fn members(&self) -> usize {
        self.members.load(Ordering::Acquire)
    }

    /// One more backend uses this host.
    pub fn join(&self) {
        self.members.fetch_add(1, Ordering::AcqRel);
    }

    /// One backend less, and all its boxes are stopped or were let go of.
    pub async fn leave(&self) {
        self.busy.idle().await;
        if self.members.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.spawner.end().await;
            self.cgroups.remove_base();
            self.ways_out.close();
            door::remove_directory(&self.doors);
            Meeting::remove_parents(self);
        }
    }
}
