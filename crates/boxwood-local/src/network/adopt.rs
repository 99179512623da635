//! Claims the networks of boxes that an earlier daemon of the same instance created.

use std::sync::Arc;

use boxwood_api::with_causes;
use boxwood_sys::netlink::{self, Subnet};
use serde::{Deserialize, Serialize};

use super::pool::Pool;
use super::resolvers::Resolvers;
use super::{HostLock, NetError, NetLease, Networks, State, Tag, delete_link, rules};
use crate::lock;

/// The network of a box in its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    /// In CIDR notation.
    pub(super) pool: String,
    pub(super) index: u32,
}

impl Networks {
    /// Takes over the network of a box of an earlier daemon. While a claimed box uses a pool, new boxes get
    /// their addresses from it, even if another one is configured now.
    pub(crate) fn claim(self: &Arc<Self>, record: &LeaseRecord) -> Result<NetLease, NetError> {
        let LeaseRecord { pool, index } = record.clone();
        let not_claimed = || NetError::NotClaimed { pool: pool.clone() };
        let range: Subnet = pool.parse().map_err(|_| not_claimed())?;
        let mut state = lock(&self.state);
        let _host = HostLock::take()?;
        let subnets = state.pool.get_or_insert_with(|| Pool::new(range, 0));
        if !subnets.claim(range, index) {
            return Err(not_claimed());
        }
        if let Err(error) = self.ensure_rules(&mut state, range) {
            state.free(index);
            return Err(error);
        }
        Ok(self.lease(&mut state, range, index))
    }

    /// Removes links of an earlier daemon of this instance that were not claimed.
    pub(crate) fn remove_leftovers(&self) -> Result<(), NetError> {
        let mut state = lock(&self.state);
        let host = HostLock::take()?;
        let links = netlink::links_with_prefix(&self.tag.links())
            .map_err(|source| NetError::HostNetwork { source })?;
        for link in links {
            if !state.has(&self.tag, &link.name) {
                delete_link(&link.name)?;
            }
        }
        state.inherited = false;
        match state.leases {
            0 => self.tear_down(&mut state, &host),
            _ => Ok(()),
        }
    }

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
                tracing::warn!(error = %with_causes(&error), "failed to update the packet filter of an adopted box; keeping the existing rules");
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
