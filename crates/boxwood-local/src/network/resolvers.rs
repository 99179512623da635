//! Chooses the name servers of boxes.
//!
//! From the configuration, or else from the host's resolver files. If only the host's loopback is
//! configured, boxes cannot resolve names, so that is an error that names the setting.

use std::net::{IpAddr, Ipv4Addr};

use boxwood_sys::netlink::{Route, Subnet};

use super::NetError;

const HOST_FILE: &str = "/etc/resolv.conf";
/// The upstream servers of systemd-resolved, used if the host's file only lists its stub.
const UPSTREAM_FILE: &str = "/run/systemd/resolve/resolv.conf";
/// The C library reads at most three.
const MAX_SERVERS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolvers {
    addresses: Vec<Ipv4Addr>,
    on_host: Vec<Ipv4Addr>,
}

impl Resolvers {
    pub(super) fn of_host(configured: &[Ipv4Addr], routes: &[Route]) -> Result<Self, NetError> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self::choose(configured, &read(HOST_FILE), || read(UPSTREAM_FILE), routes)
    }

    fn choose(
        configured: &[Ipv4Addr],
        host_file: &str,
        upstream_file: impl FnOnce() -> String,
        routes: &[Route],
    ) -> Result<Self, NetError> {
        let (source, mut named) = match configured {
            [] => (HOST_FILE, name_servers(host_file)),
            configured => ("network.dns", configured.to_vec()),
        };
        let why = explain(source, &named);
        if configured.is_empty() && !named.iter().copied().any(usable) {
            named = name_servers(&upstream_file());
        }
        let addresses: Vec<Ipv4Addr> = named
            .into_iter()
            .filter(|address| usable(*address))
            .take(MAX_SERVERS)
            .collect();
        if addresses.is_empty() {
            return Err(NetError::NoResolver { why });
        }
        let is_local = |address: &Ipv4Addr| {
            routes
                .iter()
                .any(|route| route.local && route.destination.contains(*address))
        };
        let on_host = addresses.iter().copied().filter(is_local).collect();
        Ok(Self { addresses, on_host })
    }

    pub(super) fn addresses(&self) -> &[Ipv4Addr] {
        &self.addresses
    }

    /// The name servers that run on this host. A box may query them although it cannot reach the host.
    pub(super) fn on_host(&self) -> &[Ipv4Addr] {
        &self.on_host
    }

    pub(super) fn any_in(&self, subnet: Subnet) -> bool {
        self.addresses
            .iter()
            .any(|address| subnet.contains(*address))
    }

    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self {
            addresses: Vec::new(),
            on_host: Vec::new(),
        }
    }
}

/// Loopback inside a box is not the host's; `0.0.0.0` means loopback too.
fn usable(address: Ipv4Addr) -> bool {
    !address.is_loopback() && !address.is_unspecified()
}

/// IPv6 servers are skipped: boxes have no IPv6.
fn name_servers(file: &str) -> Vec<Ipv4Addr> {
    file.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            if fields.next() != Some("nameserver") {
                return None;
            }
            match fields.next()?.parse() {
                Ok(IpAddr::V4(address)) => Some(address),
                _ => None,
            }
        })
        .collect()
}

/// Why no server can be used, if that is the case.
fn explain(source: &str, named: &[Ipv4Addr]) -> String {
    if named.is_empty() {
        return format!("`{source}` names no IPv4 server");
    }
    let named: Vec<String> = named.iter().map(ToString::to_string).collect();
    let named = named.join(", ");
    format!("`{source}` names only the host's loopback ({named})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(configured: &[Ipv4Addr], host: &str, upstream: &str) -> Result<Resolvers, NetError> {
        let local = Route {
            destination: "192.0.2.7".parse().unwrap(),
            local: true,
            interfaces: vec![1],
        };
        Resolvers::choose(configured, host, || upstream.to_owned(), &[local])
    }

    #[test]
    fn the_host_file_is_used_without_loopback_and_ipv6() {
        let host =
            "# x\nsearch a\nnameserver 127.0.0.53\n nameserver\t192.0.2.7 #c\nnameserver ::1\n";
        let found = choose(&[], host, "nameserver 9.9.9.9").unwrap();
        assert_eq!(
            found.addresses(),
            ["192.0.2.7".parse::<Ipv4Addr>().unwrap()]
        );
        assert_eq!(found.on_host(), found.addresses());
    }

    #[test]
    fn a_stub_resolver_is_replaced_by_its_upstream_servers() {
        let found = choose(&[], "nameserver 127.0.0.53", "nameserver 198.51.100.1").unwrap();
        assert_eq!(
            found.addresses(),
            ["198.51.100.1".parse::<Ipv4Addr>().unwrap()]
        );
        assert!(found.on_host().is_empty());
    }

    #[test]
    fn configured_servers_take_precedence() {
        let configured = [Ipv4Addr::new(198, 51, 100, 9)];
        let found = choose(&configured, "nameserver 192.0.2.7", "").unwrap();
        assert_eq!(found.addresses(), configured);
    }

    #[test]
    fn a_host_with_only_a_loopback_resolver_is_an_error_with_a_hint() {
        for (configured, host) in [
            (&[][..], "nameserver 127.0.0.53"),
            (&[], ""),
            (&[], "nameserver 0.0.0.0\nnameserver fe80::1%eth0"),
            (&[Ipv4Addr::LOCALHOST], "nameserver 192.0.2.7"),
        ] {
            let error = choose(configured, host, "nameserver 127.0.0.1").unwrap_err();
            assert!(matches!(error, NetError::NoResolver { .. }), "{host}");
            assert!(error.hint().unwrap().contains("network.dns"));
        }
    }
}
