//! Allocates addresses for boxes from a pool that does not overlap with the host's routes and name servers.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use boxwood_sys::netlink::{Route, Subnet};

use super::resolvers::Resolvers;
use super::{NetError, Tag};

/// Gateway and box, plus the network and broadcast addresses.
pub(super) const BOX_PREFIX: u8 = 30;
const BOX_SIZE: u32 = 4;

/// Tried in this order when the operator names no pool.
const DEFAULTS: [Subnet; 4] = [
    Subnet::new(Ipv4Addr::new(10, 213, 0, 0), 16),
    Subnet::new(Ipv4Addr::new(172, 29, 0, 0), 16),
    Subnet::new(Ipv4Addr::new(192, 168, 208, 0), 20),
    Subnet::new(Ipv4Addr::new(100, 98, 0, 0), 16),
];

#[derive(Debug)]
pub(super) struct Pool {
    range: Subnet,
    used: BTreeSet<u32>,
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BoxAddress {
    pub(super) gateway: Ipv4Addr,
    pub(super) inside: Ipv4Addr,
}

impl Pool {
    /// Searches for free subnets from index `next` on.
    pub(super) fn new(range: Subnet, next: u32) -> Self {
        Self {
            range,
            used: BTreeSet::new(),
            next,
        }
    }

    /// The configured range, or the first default range that the host does not use. If all are partly in
    /// use (a route to 10.0.0.0/8 is common), the first one with a free subnet.
    pub(super) fn choose(
        configured: Option<Subnet>,
        routes: &[Route],
        resolvers: &Resolvers,
        tag: &Tag,
    ) -> Result<Self, NetError> {
        // Instances start at different indexes, so that they rarely compete for the same subnet.
        let pool = |range| Self::new(range, tag.hash);
        if let Some(range) = configured {
            return Ok(pool(range));
        }
        // Routes to subnets of the size of a box belong to boxes of other daemons.
        let untouched = |range: &Subnet| {
            !routes
                .iter()
                .any(|route| route.destination.prefix() < BOX_PREFIX && clashes(*range, route))
                && !resolvers.any_in(*range)
        };
        DEFAULTS
            .into_iter()
            .find(untouched)
            .or_else(|| {
                DEFAULTS
                    .into_iter()
                    .find(|range| pool(*range).find(routes, resolvers).is_some())
            })
            .map(pool)
            .ok_or(NetError::NoPool)
    }

    /// Claims the subnet of a running box. Returns false if another box has it.
    pub(super) fn claim(&mut self, range: Subnet, index: u32) -> bool {
        let inside = range == self.range && self.subnet_count().is_some_and(|count| index < count);
        let is_free = inside && self.used.insert(index);
        if is_free {
            self.next = self.next.max(index.wrapping_add(1));
        }
        is_free
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.used.contains(&index)
    }

    pub(super) fn range(&self) -> Subnet {
        self.range
    }

    /// Allocates the next free subnet. Not the lowest free one, so that a new box does not receive packets
    /// for a box that has just been removed.
    pub(super) fn allocate(
        &mut self,
        routes: &[Route],
        resolvers: &Resolvers,
    ) -> Option<(u32, BoxAddress)> {
        let index = self.find(routes, resolvers)?;
        self.used.insert(index);
        self.next = index + 1;
        Some((index, self.address(index)))
    }

    fn address(&self, index: u32) -> BoxAddress {
        let base = self.subnet(index).address().to_bits();
        BoxAddress {
            gateway: Ipv4Addr::from_bits(base + 1),
            inside: Ipv4Addr::from_bits(base + 2),
        }
    }

    /// Number of subnets of one box each; `None` if the range is smaller than one.
    fn subnet_count(&self) -> Option<u32> {
        1_u32.checked_shl(u32::from(BOX_PREFIX.checked_sub(self.range.prefix())?))
    }

    pub(super) fn free(&mut self, index: u32) {
        self.used.remove(&index);
    }

    fn find(&self, routes: &[Route], resolvers: &Resolvers) -> Option<u32> {
        let count = self.subnet_count()?;
        let relevant: Vec<&Route> = routes
            .iter()
            .filter(|route| clashes(self.range, route))
            .collect();
        (0..count)
            .map(|offset| self.next.wrapping_add(offset) % count)
            .find(|index| {
                let subnet = self.subnet(*index);
                !self.used.contains(index)
                    && !relevant.iter().any(|route| clashes(subnet, route))
                    && !resolvers.any_in(subnet)
            })
    }

    fn subnet(&self, index: u32) -> Subnet {
        let base = self.range.address().to_bits() + index * BOX_SIZE;
        Subnet::new(Ipv4Addr::from_bits(base), BOX_PREFIX)
    }
}

/// The default route is ignored: it overlaps with everything.
fn clashes(subnet: Subnet, route: &Route) -> bool {
    route.destination.prefix() > 0 && route.destination.overlaps(subnet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            local: false,
            interfaces: vec![2],
        }
    }

    fn choose(configured: Option<&str>, routes: &[Route]) -> Result<Pool, NetError> {
        let configured = configured.map(|text| text.parse().unwrap());
        let resolvers = Resolvers::none();
        Pool::choose(configured, routes, &resolvers, &Tag::new("test"))
    }

    #[test]
    fn a_default_pool_that_the_host_uses_is_skipped() {
        for (used, expected) in [
            (&["0.0.0.0/0"][..], "10.213.0.0/16"),
            (&["10.213.7.0/24"], "172.29.0.0/16"),
            (&["10.0.0.0/8", "172.16.0.0/12"], "192.168.208.0/20"),
            (&["10.213.0.4/30"], "10.213.0.0/16"),
        ] {
            let routes: Vec<Route> = used.iter().map(|text| route(text)).collect();
            let pool = choose(None, &routes).unwrap();
            assert_eq!(pool.range().to_string(), expected, "{used:?}");
        }
    }

    #[test]
    fn no_pool_is_chosen_if_all_defaults_are_in_use() {
        let routes = [
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "100.64.0.0/10",
        ]
        .map(route);
        assert!(matches!(choose(None, &routes), Err(NetError::NoPool)));
    }

    #[test]
    fn subnets_in_use_are_skipped_and_freed_ones_reused() {
        let resolvers = Resolvers::none();
        let routes = [route("10.9.0.4/30"), route("10.9.0.9/32")];
        let mut pool = choose(Some("10.9.0.0/28"), &routes).unwrap();
        let (first, address) = pool.allocate(&routes, &resolvers).unwrap();
        let (second, _) = pool.allocate(&routes, &resolvers).unwrap();
        assert_eq!(BTreeSet::from([first, second]), BTreeSet::from([0, 3]));
        assert_eq!(address.inside.to_bits(), address.gateway.to_bits() + 1);
        assert!(pool.allocate(&routes, &resolvers).is_none());
        pool.free(first);
        assert_eq!(pool.allocate(&routes, &resolvers).unwrap().0, first);
    }

    #[test]
    fn a_claimed_subnet_is_not_allocated_again() {
        let range: Subnet = "10.9.0.0/28".parse().unwrap();
        let mut pool = Pool::new(range, 0);
        assert!(pool.claim(range, 2), "its own");
        assert_eq!(pool.address(2).inside, Ipv4Addr::new(10, 9, 0, 10));
        assert!(!pool.claim(range, 2) && !pool.claim(range, 4));
        assert!(!pool.claim("10.8.0.0/28".parse().unwrap(), 1));
        let given: BTreeSet<u32> = std::iter::from_fn(|| {
            pool.allocate(&[], &Resolvers::none())
                .map(|allocation| allocation.0)
        })
        .collect();
        assert_eq!(given, BTreeSet::from([0, 1, 3]));
    }

    #[test]
    fn a_pool_too_small_for_a_box_is_exhausted_not_a_panic() {
        let mut pool = choose(Some("10.9.0.0/31"), &[]).unwrap();
        assert!(pool.allocate(&[], &Resolvers::none()).is_none());
    }
}
