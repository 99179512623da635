//! Kernel settings for forwarding, per interface.
//!
//! `net.ipv4.ip_forward` would turn the whole host into a router. Packets are forwarded by the setting of
//! the interface that they arrive on, so it is enough to enable it on our own links and on the uplinks that
//! replies arrive on. The `opened-…` chains of our table keep the uplinks from forwarding anything else.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use boxwood_sys::netlink::{self, Link, Route};
use rustix::io::Errno;

use super::{LINK_PREFIX, MAX_MTU, NetError, rules};

const CONF: &str = "/proc/sys/net/ipv4/conf";

/// The interfaces that routes use, without loopback and links of boxes.
pub(super) fn uplinks(routes: &[Route]) -> Result<Vec<Link>, NetError> {
    let indexes: BTreeSet<u32> = routes
        .iter()
        .filter(|route| !route.local)
        .flat_map(|route| route.interfaces.iter().copied())
        .collect();
    let mut uplinks = Vec::new();
    for index in indexes {
        match netlink::link_by_index(index) {
            Ok(link) if link.name == "lo" || link.name.starts_with(LINK_PREFIX) => {}
            Ok(link) => uplinks.push(link),
            // Gone since the routes were read.
            Err(error) if error.errno() == Errno::NODEV => {}
            Err(source) => return Err(NetError::HostNetwork { source }),
        }
    }
    Ok(uplinks)
}

/// The MTU of the default route.
pub(super) fn mtu(uplinks: &[Link], routes: &[Route]) -> u32 {
    routes
        .iter()
        .filter(|route| route.destination.prefix() == 0)
        .flat_map(|route| &route.interfaces)
        .filter_map(|index| uplinks.iter().find(|link| link.index == *index))
        .map(|link| link.mtu)
        .fold(MAX_MTU, u32::min)
}

/// The interfaces to enable forwarding on: it is off, or on only because of boxes.
pub(super) fn to_open(
    uplinks: &[Link],
    already: Option<&BTreeSet<String>>,
) -> Result<BTreeSet<String>, NetError> {
    // If the host is configured as a router, nothing has to be enabled or disabled.
    if is_on("all")? {
        return Ok(BTreeSet::new());
    }
    let opened_by_daemons = rules::opened_by_any_daemon()?;
    let mut opened = already.cloned().unwrap_or_default();
    for link in uplinks {
        if opened_by_daemons.contains(&link.name) || !is_on(&link.name)? {
            opened.insert(link.name.clone());
        }
    }
    Ok(opened)
}

pub(super) fn open(interfaces: &BTreeSet<String>) -> Result<(), NetError> {
    for interface in interfaces {
        if !is_on(interface)? {
            set(interface, "forwarding", "1")?;
        }
    }
    Ok(())
}

/// Disables forwarding again, unless the host was configured as a router meanwhile.
pub(super) fn close(interfaces: &BTreeSet<String>) -> Result<(), NetError> {
    if interfaces.is_empty() || is_on("all")? {
        return Ok(());
    }
    let mut outcome = Ok(());
    for interface in interfaces {
        match set(interface, "forwarding", "0") {
            Err(NetError::Setting { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            result => outcome = outcome.and(result),
        }
    }
    outcome
}

/// Settings of a box's own link. They disappear with it.
pub(super) fn harden(interface: &str) -> Result<(), NetError> {
    for (setting, value) in [
        ("forwarding", "1"),
        // A second check of the source address, besides the packet filter.
        ("rp_filter", "1"),
        // Packets for 127.0.0.0/8 must not arrive from a box.
        ("route_localnet", "0"),
        // Reply to ARP only for the gateway's address, so that other addresses of the host stay hidden.
        ("arp_ignore", "1"),
        ("accept_redirects", "0"),
        ("send_redirects", "0"),
        ("accept_source_route", "0"),
    ] {
        set(interface, setting, value)?;
    }
    Ok(())
}

fn is_on(interface: &str) -> Result<bool, NetError> {
    let path = format!("{CONF}/{interface}/forwarding");
    match std::fs::read_to_string(&path) {
        Ok(value) => Ok(value.trim() != "0"),
        // The interface is gone: nothing to enable.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(source) => Err(NetError::Setting { path, source }),
    }
}

fn set(interface: &str, setting: &str, value: &str) -> Result<(), NetError> {
    let path = format!("{CONF}/{interface}/{setting}");
    std::fs::write(&path, value).map_err(|source| NetError::Setting { path, source })
}
