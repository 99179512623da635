//! Claims the networks of boxes that an earlier daemon of the same instance created.

use std::sync::Arc;

use boxwood_sys::netlink::{self, Subnet};
use serde::{Deserialize, Serialize};

use super::pool::Pool;
use super::resolvers::Resolvers;
use super::{
    HostLock, InsideNetwork, NetError, NetLease, Networks, Shared, State, Tag, delete_link, rules,
};

/// The network of a box in its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    #[serde(with = "as_text")]
    pub(super) pool: Subnet,
    pub(super) index: u32,
    pub(super) inside: InsideNetwork,
}

/// Stores subnets in CIDR notation.
mod as_text {
    use boxwood_sys::netlink::Subnet;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference"
    )]
    pub(super) fn serialize<S: Serializer>(subnet: &Subnet, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(subnet)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Subnet, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Networks {
    /// Takes over the network of a box of an earlier daemon. While a claimed box uses a pool, new boxes get
    /// their addresses from it, even if another one is configured now.
    pub(crate) fn claim(&self, record: &LeaseRecord) -> Result<NetLease, NetError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let _host = HostLock::take()?;
        let mut pool = match state.pool.take() {
            Some(pool) => pool,
            None => Pool::resume(record.pool),
        };
        let claimed = pool.claim(record.pool, record.index);
        state.pool = Some(pool);
        let not_claimed = NetError::NotClaimed {
            address: record.inside.address,
        };
        let Some(address) = claimed else {
            return Err(not_claimed);
        };
        if address.inside != record.inside.address {
            state.free(record.index);
            return Err(not_claimed);
        }
        if let Err(error) = shared.ensure_rules(&mut state, record.pool) {
            state.free(record.index);
            return Err(error);
        }
        state.leases += 1;
        Ok(NetLease {
            shared: Arc::clone(shared),
            pool: record.pool,
            index: record.index,
            inside: record.inside.clone(),
            released: false,
        })
    }

    /// Removes links of an earlier daemon of this instance that were not claimed.
    pub(crate) fn remove_leftovers(&self) -> Result<(), NetError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let host = HostLock::take()?;
        let links = netlink::links_with_prefix(&shared.tag.links())
            .map_err(|source| NetError::HostNetwork { source })?;
        for link in links {
            if !state.has(&shared.tag, &link.name) {
                delete_link(&link.name)?;
            }
        }
        state.inherited = false;
        match state.leases {
            0 => shared.tear_down(&mut state, &host),
            _ => Ok(()),
        }
    }
}

impl Shared {
    /// Installs the rules for a box that is already running. If that fails, for example because the host has
    /// no network at the moment, the rules of the earlier daemon must still be installed.
    fn ensure_rules(&self, state: &mut State, range: Subnet) -> Result<(), NetError> {
        if state.installed.is_some() {
            return Ok(());
        }
        let mut opened = || {
            let routes = netlink::routes().map_err(|source| NetError::HostNetwork { source })?;
            let resolvers = Resolvers::of_host(&self.settings.dns, &routes)?;
            self.open_forwarding(state, range, &routes, &resolvers)
        };
        match opened() {
            Ok(_) => Ok(()),
            Err(error) if rules::are_installed(&self.tag)? => {
                tracing::warn!(%error, "failed to update the packet filter of an adopted box; keeping the existing rules");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl State {
    fn has(&self, tag: &Tag, link: &str) -> bool {
        let index = link.strip_prefix(&tag.links());
        let index = index.and_then(|index| u32::from_str_radix(index, 16).ok());
        let pool = self.pool.as_ref();
        index.is_some_and(|index| pool.is_some_and(|pool| pool.has(index)))
    }
}
