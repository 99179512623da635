//! The kernel's settings for forwarding, one interface at a time.
//!
//! `net.ipv4.ip_forward` would make a router of the whole host and tell other programs that somebody
//! wanted one. Packets are forwarded by the setting of the interface they arrive on, so it is enough
//! to switch it on for our own links and for those that answers come back by; the table's `opened-…`
//! chains keep the latter from forwarding anything else.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use boxwood_sys::netlink::{self, Link, Route};
use rustix::io::Errno;

use super::{LARGEST_MTU, LINK_PREFIX, NetError, rules};

const CONF: &str = "/proc/sys/net/ipv4/conf";

/// The interfaces that a route leaves by, without loopback and boxes.
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

/// The size of packet that leaves this host whole, as far as its default route knows.
pub(super) fn mtu(uplinks: &[Link], routes: &[Route]) -> u32 {
    routes
        .iter()
        .filter(|route| route.destination.prefix() == 0)
        .flat_map(|route| &route.interfaces)
        .filter_map(|index| uplinks.iter().find(|link| link.index == *index))
        .map(|link| link.mtu)
        .fold(LARGEST_MTU, u32::min)
}

/// Which interfaces must be opened: forwarding is off there, or on only because of boxes.
pub(super) fn to_open(
    uplinks: &[Link],
    already: Option<&BTreeSet<String>>,
) -> Result<BTreeSet<String>, NetError> {
    // Where the host is a router by its own will, nothing is ours to open or to close.
    if is_on("all")? {
        return Ok(BTreeSet::new());
    }
    let counted_on = rules::opened_by_anyone()?;
    let mut opened = already.cloned().unwrap_or_default();
    for link in uplinks {
        if counted_on.contains(&link.name) || !is_on(&link.name)? {
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

/// Puts forwarding back to off, unless somebody has made a router of this host since.
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

/// Settings of a box's own link. They go with it.
pub(super) fn harden(interface: &str) -> Result<(), NetError> {
    for (setting, value) in [
        ("forwarding", "1"),
        // A second check of the source address, beside the table's.
        ("rp_filter", "1"),
        // Packets for 127.0.0.0/8 never come from outside.
        ("route_localnet", "0"),
        // The host answers for the gateway's address only; others would show what it has.
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
        // An interface that is gone forwards nothing and needs no opening.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(source) => Err(NetError::Setting { path, source }),
    }
}

fn set(interface: &str, setting: &str, value: &str) -> Result<(), NetError> {
    let path = format!("{CONF}/{interface}/{setting}");
    std::fs::write(&path, value).map_err(|source| NetError::Setting { path, source })
}
