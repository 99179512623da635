//! Runs boxes on this machine whose first process is `boxwood-init`.
//!
//! A backend starts an init (a fork of the spawner, a container, a jail) and hands over its channel. This
//! crate turns it into a [`LocalBox`]: processes, files, mounts, cgroups, uids, networks and images. How
//! the namespaces are created is left to the backends.
#![forbid(unsafe_code)]

mod adopt;
mod cgroup;
mod files;
mod host;
mod ids;
mod images;
mod label;
mod mounts;
mod network;
mod probe;
mod process;
mod sandbox;
mod start;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use adopt::{Reconnected, step as adopt_step};
pub use cgroup::{Cgroups, Group, INIT_PROCESSES};
pub use host::LocalHost;
pub use host::activity::{ActiveWork, LastActivity};
pub use host::instance::is_globally_unique;
pub use host::names::next_name;
pub use host::settings::{DEFAULT_GRACE, Kind, Settings};
pub use host::spawner::{SpawnedProcess, Spawner, program};
pub use ids::{BoxIds, IdsRecord, Mapping};
pub use images::{ImageLease, ImageStore};
pub use label::{
    Lack, check_required, host_lacks, label, local_capabilities, observed_lacks, own_kernel_lacks,
};
pub use mounts::idmap::idmapped_image;
pub use mounts::is_shared;
pub use mounts::live::BoxNamespaces;
pub use mounts::plan::{mount_plan, same_path};
pub use network::outbound::attach;
pub use network::{NetError, NetworkSettings, OutboundNetwork, firewall_warning};
pub use probe::{probe_box, probe_host};
pub use process::async_fd::{AsyncChannel, async_fd};
pub use sandbox::resources::{BackendState, BoxResources};
pub use sandbox::{LocalBox, Relayed};
pub use start::bootstrap::{BootstrapDir, InitConnection};
pub use start::environment::environment;
pub use start::task::{spawn_adopt, spawn_start};
pub use start::tmpfs_sizes::{TmpfsSizes, quota_limits};
pub use start::{ConnectedBox, StartedInit, start_init};

/// Locks a mutex. A panic of another holder does not matter: no state is left half-changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
