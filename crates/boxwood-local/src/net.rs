//! A box's way out, and nothing but a way out.
//!
//! Comes in: the network namespace of a box that is being started. Goes out: a lease. While it is
//! held the box has an address, a route and name servers; what it cannot reach stands in [`rules`], and
//! a second time in [`guard`]. Never here: anything inside the box's namespace; init configures its own
//! end from [`InsideNetwork`] and [`InsideRules`]. All calls block for milliseconds and belong on a
//! blocking thread.
//!
//! The kernel is the only memory: links carry the instance's tag in their names, the table carries it
//! in its own, and the interfaces whose forwarding was switched on stand in the table as chains. So a
//! daemon that was killed leaves nothing that the next one cannot take over ([`Networks::claim`]) or
//! undo ([`Networks::settle`]).

mod error;
mod forwarding;
mod guard;
mod heritage;
mod pasta;
mod pool;
mod resolvers;
mod rules;
#[cfg(test)]
mod tests;
mod ways_out;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_sys::netlink::{self, Route, Subnet, VethPair};
use boxwood_sys::nftables::InsideRules;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use error::NetError;
pub(crate) use heritage::LeaseRecord;
pub(crate) use pasta::Pasta;
pub(crate) use pasta::{PastaLease, PastaRecord};
pub use rules::caution;
pub use ways_out::WaysOut;

use pool::Pool;
use resolvers::Resolvers;
use rules::HostRules;

/// What every link of every instance starts with: one box must not reach another's, whoever runs it.
const LINK_PREFIX: &str = "bxw";
const INSIDE_INTERFACE: &str = "eth0";
/// Larger frames gain nothing on a path that ends in somebody else's network.
const LARGEST_MTU: u32 = 1500;

/// The operator's `[network]` section, as far as it concerns boxes with a network.
#[derive(Clone, Debug, Default)]
pub struct NetworkSettings {
    /// Where boxes get their addresses from; a free range is chosen when none is given.
    pub pool: Option<Subnet>,
    /// Name servers for boxes, instead of the host's.
    pub dns: Vec<Ipv4Addr>,
    /// Networks that no box may reach, beside those that none ever may.
    pub denied: Vec<Subnet>,
}

/// What init needs to know to configure its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InsideNetwork {
    pub(crate) interface: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) dns: Vec<Ipv4Addr>,
    pub(crate) mtu: u32,
}

/// All networked boxes of one daemon.
#[derive(Clone, Debug)]
pub struct Networks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tag: Tag,
    settings: NetworkSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pool: Option<Pool>,
    leases: usize,
    installed: Option<HostRules>,
    /// Chains of other programs that let our boxes through.
    passed: BTreeSet<(String, String)>,
    /// Boxes of an earlier daemon stand behind the rules, until they are claimed or gone.
    inherited: bool,
}

impl Networks {
    /// `instance` tells this daemon from others on the same host; its state directory will do.
    pub(crate) fn new(instance: &str, settings: NetworkSettings) -> Self {
        let tag = Tag::new(instance);
        // Where it cannot be told there may be some, and the rules stay until it is settled.
        let inherited =
            netlink::links_with_prefix(&tag.links()).map_or(true, |links| !links.is_empty());
        Self {
            shared: Arc::new(Shared {
                tag,
                settings,
                state: Mutex::new(State {
                    inherited,
                    ..State::default()
                }),
            }),
        }
    }

    /// Gives the box in this network namespace a way out. Init installs the rules before it brings its
    /// interface up: they hold where the host's table does not.
    pub(crate) fn attach_namespace(
        &self,
        netns: BorrowedFd<'_>,
    ) -> Result<(NetLease, InsideRules), NetError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let host = HostLock::take()?;
        let attached = shared.attach(&mut state, netns);
        if attached.is_err() && state.leases == 0 {
            // The first box failed half-way; the error that matters is the one being returned.
            if let Err(error) = shared.tear_down(&mut state, &host) {
                tracing::warn!(%error, "the network set up for a failed start was not removed");
            }
        }
        let (pool, index, inside, rules) = attached?;
        state.leases += 1;
        let lease = NetLease {
            shared: Arc::clone(shared),
            pool,
            index,
            inside,
            released: false,
        };
        Ok((lease, rules))
    }

    /// Removes what a dead instance left that nobody takes over.
    pub(crate) fn sweep(instance: &str) -> Result<(), NetError> {
        let tag = Tag::new(instance);
        let _host = HostLock::take()?;
        let links = netlink::links_with_prefix(&tag.links())
            .map_err(|source| NetError::HostNetwork { source })?;
        for link in links {
            delete_link(&link.name)?;
        }
        rules::remove(&tag)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state as the kernel has it: it is changed after the kernel.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach(
        &self,
        state: &mut State,
        netns: BorrowedFd<'_>,
    ) -> Result<(Subnet, u32, InsideNetwork, InsideRules), NetError> {
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
            .open_the_way(state, range, &routes, &resolvers)
            .and_then(|mtu| {
                let name = self.tag.link(index);
                connect(&name, netns, address.gateway, address.prefix, mtu)?;
                Ok(InsideNetwork {
                    interface: INSIDE_INTERFACE.to_owned(),
                    address: address.inside,
                    prefix: address.prefix,
                    gateway: address.gateway,
                    dns: resolvers.addresses().to_vec(),
                    mtu,
                })
            });
        if attached.is_err() {
            state.free(index);
        }
        let denied = &self.settings.denied;
        let rules = guard::inside_rules(&routes, &resolvers, denied, Some(range));
        Ok((range, index, attached?, rules))
    }

    /// Rules first, forwarding second: nothing is forwarded that no rule has looked at.
    fn open_the_way(
        &self,
        state: &mut State,
        range: Subnet,
        routes: &[Route],
        resolvers: &Resolvers,
    ) -> Result<u32, NetError> {
        let uplinks = forwarding::uplinks(routes)?;
        let already = state.installed.as_ref().map(|rules| &rules.opened);
        let wanted = HostRules {
            pool: range,
            resolvers: resolvers.clone(),
            denied: self.settings.denied.clone(),
            opened: forwarding::to_open(&uplinks, already)?,
        };
        if state.installed.as_ref() != Some(&wanted) {
            rules::install(&self.tag, &wanted)?;
            state.installed = Some(wanted.clone());
        }
        rules::pass_obstacles(&self.tag, &mut state.passed)?;
        forwarding::open(&wanted.opened)?;
        Ok(forwarding::mtu(&uplinks, routes))
    }

    fn tear_down(&self, state: &mut State, _host: &HostLock) -> Result<(), NetError> {
        if state.inherited {
            return Ok(());
        }
        state.installed = None;
        state.pool = None;
        state.passed.clear();
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
    shared: Arc<Shared>,
    pool: Subnet,
    index: u32,
    inside: InsideNetwork,
    released: bool,
}

impl NetLease {
    pub(crate) fn inside(&self) -> &InsideNetwork {
        &self.inside
    }

    pub(crate) fn record(&self) -> LeaseRecord {
        LeaseRecord {
            pool: self.pool,
            index: self.index,
            inside: self.inside.clone(),
        }
    }

    /// The box outlives this daemon, and its network with it.
    pub(crate) fn leave(mut self) {
        self.released = true;
    }

    /// Takes the box's network away; with the last one goes everything that was changed on the host.
    pub(crate) fn release(mut self) -> Result<(), NetError> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<(), NetError> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        // Outside the lock: deleting a link waits for the kernel, and others need not.
        let deleted = delete_link(&self.shared.tag.link(self.index));
        let mut state = self.shared.lock();
        state.free(self.index);
        state.leases -= 1;
        let removed = match state.leases {
            0 => HostLock::take().and_then(|host| self.shared.tear_down(&mut state, &host)),
            _ => Ok(()),
        };
        deleted.and(removed)
    }
}

impl Drop for NetLease {
    fn drop(&mut self) {
        if let Err(error) = self.let_go() {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a box's network was not removed"
            );
        }
    }
}

/// The mark of one instance on everything it makes. A hash, because an interface name has room for
/// fifteen bytes; FNV, because it must be the same in the next version.
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

/// Held while the host's network is looked at and changed, by whichever daemon does it. The lock is on
/// the network namespace itself: it needs no file, and it is the very thing that must not be changed
/// by two at once.
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

/// Makes the cable and brings the host's end up. When this fails no link is left.
fn connect(
    name: &str,
    netns: BorrowedFd<'_>,
    gateway: Ipv4Addr,
    prefix: u8,
    mtu: u32,
) -> Result<(), NetError> {
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
        netlink::add_address(index, gateway, prefix).map_err(link)?;
        netlink::set_up(name).map_err(link)
    };
    raised().inspect_err(|_| {
        if let Err(error) = delete_link(name) {
            tracing::warn!(%error, "the link of a failed start was not removed");
        }
    })
}

/// A link that is gone already went with the box's namespace.
fn delete_link(name: &str) -> Result<(), NetError> {
    match netlink::delete_link(name) {
        Err(source) if source.errno() != Errno::NODEV => Err(NetError::Link {
            name: name.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}
