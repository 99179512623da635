//! A box before it is one: empty namespaces, limits' groups joined, init waiting for its plan.

use std::io;
use std::sync::Arc;

use boxwood_init::{Channel, ToSpawner};
use boxwood_local::{Born, Doors, Group, Remains, next_name};
use boxwood_policy::BoxUser;

use crate::Shared;

pub(crate) struct Blank {
    pub(crate) remains: Remains,
    pub(crate) channel: Channel,
    pub(crate) user: BoxUser,
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
        let host = &shared.host;
        let ids = host.mapping.allocate(user)?;
        let (ours, theirs) = Channel::pair()?;
        let owner = ids.namespace_owner();
        let Born { pid, pidfd } = host.ask_spawner(ToSpawner::Blank { owner }, &theirs)?;
        drop(theirs);
        let mut remains = Remains::new(next_name(), pid, pidfd, ids)?;
        // Before the maps: they let init become another, and then only root may look at it.
        // Where even that is forbidden boxes work, and take no mounts later.
        let doors = Doors::open(remains.init)
            .inspect_err(|error| tracing::debug!(%error, "a box's namespaces stay closed"));
        if let Ok(doors) = doors {
            remains.set_doors(doors);
        }
        host.mapping.write(pid, &remains.ids)?;
        if host.cgroups.any() {
            let group = Group::create(&host.cgroups, &remains.name, remains.ids.init_uid)?;
            remains.group.insert(group).add(pid)?;
        }
        Ok(Self {
            remains,
            channel: ours,
            user,
        })
    }
}
