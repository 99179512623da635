//! The outbound network of boxes.
//!
//! A lease gives a box an address, a route and name servers for as long as it is held. What the box cannot
//! reach is defined in [`rules`] on the host and again in [`inside`] inside the box. Init configures its own
//! end from [`InsideNetwork`]. All calls block for milliseconds and belong on a
//! blocking thread.
//!
//! All state is in the kernel: names of links and tables contain the instance's tag, and interfaces whose
//! forwarding was enabled are listed as chains of the table. After a crash the next daemon can therefore take
//! over ([`Networks::claim`]) or remove ([`Networks::remove_leftovers`]) everything.

mod adopt;
mod error;
mod forwarding;
mod inside;
pub(crate) mod outbound;
mod pasta;
mod pool;
mod resolvers;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use boxwood_api::with_causes;
use boxwood_init::{InsideInterface, InsideNetwork};
use boxwood_sys::netlink::{self, Route, Subnet, VethPair};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

pub(crate) use adopt::LeaseRecord;
pub use error::NetError;
pub use outbound::OutboundNetwork;
pub(crate) use pasta::Pasta;
pub(crate) use pasta::{PastaLease, PastaRecord};
pub use rules::firewall_warning;

use crate::lock;
use inside::inside_network;
use pool::{BOX_PREFIX, Pool};
use resolvers::Resolvers;
use rules::HostRules;

/// Common prefix of the links of all instances, so that rules can separate boxes of different daemons.
const LINK_PREFIX: &str = "bxw";
const INSIDE_INTERFACE: &str = "eth0";
/// Larger frames gain nothing on a path that leaves the host.
const MAX_MTU: u32 = 1500;

/// The operator's `[network]` section.
#[derive(Clone, Debug, Default)]
pub struct NetworkSettings {
    /// Address range of boxes; a free one is chosen if unset.
    pub pool: Option<Subnet>,
    /// Name servers for boxes, instead of the host's.
    pub dns: Vec<Ipv4Addr>,
    /// Networks that no box may reach, in addition to the built-in ones.
    pub denied: Vec<Subnet>,
}

/// The networks of all boxes of one daemon.
#[derive(Debug)]
pub struct Networks {
    tag: Tag,
    settings: NetworkSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pool: Option<Pool>,
    leases: usize,
    installed: Option<HostRules>,
    /// Chains of other programs with rules that accept packets of our boxes.
    allowed_in: BTreeSet<(String, String)>,
    /// Boxes of an earlier daemon may still need the rules, until leftovers are removed.
    inherited: bool,
}

impl Networks {
    /// `instance` identifies this daemon on the host.
    pub(crate) fn new(instance: &str, settings: NetworkSettings) -> Arc<Self> {
        let tag = Tag::new(instance);
        // On error assume that there are some; the rules stay until leftovers are removed.
        let inherited =
            netlink::links_with_prefix(&tag.links()).map_or(true, |links| !links.is_empty());
        Arc::new(Self {
            tag,
            settings,
            state: Mutex::new(State {
                inherited,
                ..State::default()
            }),
        })
    }

    /// Connects the box in this network namespace. Init must deny the returned networks before it brings its
    /// interface up: its filter applies even where the host's table does not.
    pub(crate) fn attach_namespace(
        self: &Arc<Self>,
        netns: BorrowedFd<'_>,
    ) -> Result<(NetLease, InsideNetwork), NetError> {
        let mut state = lock(&self.state);
        let host = HostLock::take()?;
        let attached = self.attach(&mut state, netns);
        if attached.is_err() && state.leases == 0 {
            // The first box failed. A cleanup error is logged; the original error is returned.
            if let Err(error) = self.tear_down(&mut state, &host) {
                tracing::warn!(error = %with_causes(&error), "failed to remove the network of a failed start");
            }
        }
        let (pool, index, inside) = attached?;
        Ok((self.lease(&mut state, pool, index), inside))
    }

    fn lease(self: &Arc<Self>, state: &mut State, pool: Subnet, index: u32) -> NetLease {
        state.leases += 1;
        NetLease {
            networks: Arc::clone(self),
            pool,
            index,
            released: false,
        }
    }

    /// Removes the network of a dead instance.
    pub(crate) fn remove_instance(instance: &str) -> Result<(), NetError> {
        let tag = Tag::new(instance);
        let _host = HostLock::take()?;
        let links = netlink::links_with_prefix(&tag.links())
            .map_err(|source| NetError::HostNetwork { source })?;
        for link in links {
            delete_link(&link.name)?;
        }
        rules::remove(&tag)
    }

    fn attach(
        &self,
        state: &mut State,
        netns: BorrowedFd<'_>,
    ) -> Result<(Subnet, u32, InsideNetwork), NetError> {
        let routes = netlink::routes().map_err(|source| NetError::HostNetwork { source })?;
        let resolvers = Resolvers::of_host(&self.settings.dns, &routes)?;
        let mut pool = match state.pool.take() {
            Some(pool) => pool,
            None => Pool::choose(self.settings.pool, &routes, &resolvers, &self.tag)?,
        };
        let chosen = pool.allocate(&routes, &resolvers);
        let range = pool.range();
        state.pool = Some(pool);
        let (index, address) = chosen.ok_or(NetError::PoolExhausted { pool: range })?;

        let attached = self
            .open_forwarding(state, range, &routes, &resolvers)
            .and_then(|mtu| {
                let name = self.tag.link(index);
                connect(&name, netns, address.gateway, mtu)?;
                Ok(InsideInterface {
                    name: INSIDE_INTERFACE.to_owned(),
                    address: address.inside,
                    prefix: BOX_PREFIX,
                    gateway: address.gateway,
                    mtu,
                })
            });
        if attached.is_err() {
            state.free(index);
        }
        let interface = Some(attached?);
        let denied = &self.settings.denied;
        let inside = inside_network(interface, &routes, &resolvers, denied, Some(range));
        Ok((range, index, inside))
    }

    /// Installs the rules before it enables forwarding, so that no packet is forwarded unfiltered.
    fn open_forwarding(
        &self,
        state: &mut State,
        range: Subnet,
        routes: &[Route],
        resolvers: &Resolvers,
    ) -> Result<u32, NetError> {
        let uplinks = forwarding::uplinks(routes)?;
        let already = state.installed.as_ref().map(|rules| &rules.opened);
        let host_rules = HostRules {
            pool: range,
            resolvers: resolvers.clone(),
            denied: self.settings.denied.clone(),
            opened: forwarding::to_open(&uplinks, already)?,
        };
        if state.installed.as_ref() != Some(&host_rules) {
            rules::install(&self.tag, &host_rules)?;
            state.installed = Some(host_rules.clone());
        }
        rules::allow_in_foreign_chains(&self.tag, &mut state.allowed_in)?;
        forwarding::open(&host_rules.opened)?;
        Ok(forwarding::mtu(&uplinks, routes))
    }

    fn tear_down(&self, state: &mut State, _host: &HostLock) -> Result<(), NetError> {
        if state.inherited {
            return Ok(());
        }
        state.installed = None;
        state.pool = None;
        state.allowed_in.clear();
        rules::remove(&self.tag)
    }
}

impl State {
    fn free(&mut self, index: u32) {
        if let Some(pool) = &mut self.pool {
            pool.free(index);
        }
    }
}

/// The network of one box, until it is released or dropped.
#[derive(Debug)]
pub(crate) struct NetLease {
    networks: Arc<Networks>,
    pool: Subnet,
    index: u32,
    released: bool,
}

impl NetLease {
    pub(crate) fn record(&self) -> LeaseRecord {
        LeaseRecord {
            pool: self.pool.to_string(),
            index: self.index,
        }
    }

    /// Keeps the network for the next daemon.
    pub(crate) fn detach(mut self) {
        self.released = true;
    }

    /// Removes the box's network. With the last lease all changes to the host are reverted.
    pub(crate) fn release(mut self) -> Result<(), NetError> {
        self.release_once()
    }

    fn release_once(&mut self) -> Result<(), NetError> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        // Outside the lock, because deleting a link waits for the kernel.
        let deleted = delete_link(&self.networks.tag.link(self.index));
        let mut state = lock(&self.networks.state);
        state.free(self.index);
        state.leases -= 1;
        let removed = match state.leases {
            0 => HostLock::take().and_then(|host| self.networks.tear_down(&mut state, &host)),
            _ => Ok(()),
        };
        deleted.and(removed)
    }
}

impl Drop for NetLease {
    fn drop(&mut self) {
        if let Err(error) = self.release_once() {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to remove the network of a box"
            );
        }
    }
}

/// The tag of one instance in names of links and tables. A hash, because an interface name has at most
/// fifteen bytes; FNV, because it must not change between versions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag {
    hash: u32,
}

impl Tag {
    fn new(instance: &str) -> Self {
        let hash = instance.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Self {
            hash: (hash >> 24) ^ (hash & 0x00ff_ffff),
        }
    }

    fn links(&self) -> String {
        format!("{LINK_PREFIX}{:06x}-", self.hash)
    }

    fn link(&self, index: u32) -> String {
        format!("{}{index:x}", self.links())
    }

    fn table(&self) -> String {
        format!("{}{:06x}", rules::TABLE_PREFIX, self.hash)
    }
}

/// Held while the host's network is read and changed; excludes other daemons too. The lock is on the network
/// namespace itself, so no lock file is needed.
#[derive(Debug)]
struct HostLock {
    _namespace: File,
}

impl HostLock {
    fn take() -> Result<Self, NetError> {
        const PATH: &str = "/proc/thread-self/ns/net";
        let fail = |source| NetError::Namespace {
            path: PATH.to_owned(),
            source,
        };
        let namespace = File::open(PATH).map_err(fail)?;
        rustix::fs::flock(&namespace, FlockOperation::LockExclusive)
            .map_err(|errno| fail(errno.into()))?;
        Ok(Self {
            _namespace: namespace,
        })
    }
}

/// Creates the veth pair and configures the host's end. On error no link is left.
fn connect(name: &str, netns: BorrowedFd<'_>, gateway: Ipv4Addr, mtu: u32) -> Result<(), NetError> {
    let link = |source| NetError::Link {
        name: name.to_owned(),
        source,
    };
    netlink::create_veth(VethPair {
        outside: name,
        inside: INSIDE_INTERFACE,
        netns,
        mtu,
    })
    .map_err(link)?;
    let raised = || {
        let index = netlink::link_by_name(name).map_err(link)?.index;
        netlink::without_ipv6_address(index).map_err(link)?;
        forwarding::harden(name)?;
        netlink::add_address(index, gateway, BOX_PREFIX).map_err(link)?;
        netlink::set_up(name).map_err(link)
    };
    raised().inspect_err(|_| {
        if let Err(error) = delete_link(name) {
            tracing::warn!(error = %with_causes(&error), "failed to remove the link of a failed start");
        }
    })
}

/// A missing link is not an error: it disappears with the box's namespace.
fn delete_link(name: &str) -> Result<(), NetError> {
    match netlink::delete_link(name) {
        Err(source) if source.errno() != Errno::NODEV => Err(NetError::Link {
            name: name.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}
