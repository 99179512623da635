//! A prewarmed box: empty namespaces, cgroups joined, init waiting for its plan.

use std::io;

use boxwood_init::{Channel, ToSpawner};
use boxwood_local::{BoxNamespaces, BoxResources, Group, SpawnedProcess, next_name};
use boxwood_policy::BoxUser;

use crate::NativeBackend;

pub(crate) struct Prewarmed {
    pub(crate) resources: BoxResources,
    pub(crate) channel: Channel,
}

impl Prewarmed {
    /// Creates one on a blocking thread.
    pub(crate) async fn make(backend: &NativeBackend, user: BoxUser) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let backend = backend.clone();
        tokio::task::spawn_blocking(move || {
            // The pidfd is registered with the runtime.
            let _inside = runtime.enter();
            Self::make_blocking(&backend, user)
        })
        .await
        .map_err(io::Error::other)?
    }

    fn make_blocking(backend: &NativeBackend, user: BoxUser) -> io::Result<Self> {
        let host = &backend.host;
        let ids = host.mapping.allocate(user)?;
        let (channel, init_channel) = Channel::pair()?;
        let owner = ids.namespace_owner();
        let SpawnedProcess { pid, pidfd } = host
            .spawner
            .spawn(ToSpawner::Init { owner }, &init_channel)?;
        drop(init_channel);
        let mut resources = BoxResources::new(next_name(), pid, pidfd, ids)?;
        // Before the id maps: they allow init to change its uid, and then only root may open its
        // namespaces. If that is forbidden even now, the box works but mounts cannot be added later.
        let namespaces = BoxNamespaces::open(resources.init)
            .inspect_err(|error| tracing::debug!(%error, "failed to open the namespaces of a box; mounts cannot be added to it"));
        if let Ok(namespaces) = namespaces {
            resources.set_namespaces(namespaces);
        }
        host.mapping.write(pid, &resources.ids)?;
        if host.cgroups.any() {
            let group = Group::create(&host.cgroups, &resources.name, resources.ids.init_uid)?;
            resources.group.insert(group).add(pid)?;
        }
        Ok(Self { resources, channel })
    }
}
