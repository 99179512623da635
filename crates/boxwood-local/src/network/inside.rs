//! What init configures in the network namespace of a box, behind veth or behind `pasta`.
//!
//! Input: the host's routes and name servers, the operator's denied networks. Init denies the listed networks
//! with a packet filter of the box's own. The host's table is not involved.

use boxwood_init::{InsideInterface, InsideNetwork};
use boxwood_sys::netlink::{Route, Subnet};

use super::resolvers::Resolvers;

/// `pool` contains the addresses of all boxes of this daemon; `None` if boxes have no addresses that the host
/// can reach.
pub(super) fn inside_network(
    interface: Option<InsideInterface>,
    routes: &[Route],
    resolvers: &Resolvers,
    denied: &[Subnet],
    pool: Option<Subnet>,
) -> InsideNetwork {
    // The gateway of every box is an address of the host. One rule for the pool covers all gateways.
    let in_pool = |address: Subnet| pool.is_some_and(|pool| covers(pool, address));
    let denied = own_addresses(routes)
        .filter(|address| !in_pool(*address))
        .chain(pool)
        .chain(denied.iter().copied());
    InsideNetwork {
        interface,
        dns: resolvers.addresses().to_vec(),
        denied: denied
            .map(|network| (network.address(), network.prefix()))
            .collect(),
    }
}

/// The host's own addresses, without its loopback.
fn own_addresses(routes: &[Route]) -> impl Iterator<Item = Subnet> {
    routes
        .iter()
        .filter(|route| route.local)
        .map(|route| route.destination)
        // A transparent proxy has a local route to every address; they are not the host's addresses.
        .filter(|destination| destination.prefix() > 0 && !destination.address().is_loopback())
}

fn covers(outer: Subnet, inner: Subnet) -> bool {
    outer.prefix() <= inner.prefix() && outer.contains(inner.address())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn route(destination: &str, local: bool) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            local,
            interfaces: vec![1],
        }
    }

    fn check(routes: &[Route], pool: Option<&str>, expected: &[&str]) {
        let denied = ["192.168.0.0/16".parse().unwrap()];
        let pool = pool.map(|text| text.parse().unwrap());
        let inside = inside_network(None, routes, &Resolvers::none(), &denied, pool);
        let found: Vec<String> = inside
            .denied
            .iter()
            .map(|(address, prefix)| format!("{address}/{prefix}"))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_hosts_addresses_the_pool_and_the_operators_networks_are_denied() {
        let routes = [
            route("0.0.0.0/0", false),
            route("192.0.2.0/24", false),
            route("127.0.0.0/8", true),
            route("192.0.2.2", true),
            route("10.213.0.1", true),
            route("10.214.0.1", true),
        ];
        check(
            &routes,
            Some("10.213.0.0/16"),
            &[
                "192.0.2.2/32",
                "10.214.0.1/32",
                "10.213.0.0/16",
                "192.168.0.0/16",
            ],
        );
        check(
            &routes,
            None,
            &[
                "192.0.2.2/32",
                "10.213.0.1/32",
                "10.214.0.1/32",
                "192.168.0.0/16",
            ],
        );
    }

    #[test]
    fn a_transparent_proxys_route_does_not_deny_the_internet() {
        let routes = [route("0.0.0.0/0", true), route("192.0.2.2", true)];
        check(&routes, None, &["192.0.2.2/32", "192.168.0.0/16"]);
    }

    #[test]
    fn name_servers_stay_reachable() {
        let configured = [Ipv4Addr::new(192, 0, 2, 2)];
        let routes = [route("192.0.2.2", true)];
        let resolvers = Resolvers::of_host(&configured, &routes).unwrap();
        let inside = inside_network(None, &routes, &resolvers, &[], None);
        assert_eq!(inside.dns, configured);
    }
}
