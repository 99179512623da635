//! Links, addresses and routes.
//!
//! All changes apply to the network namespace of the calling thread.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::{Attributes, Family, Message, NetlinkError, Socket, Subnet};

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const SET_LINK: u16 = 19;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const LINK_AF_SPEC: u16 = 26;
const LINK_NETNS_FD: u16 = 28;
const LINK_EXT_MASK: u16 = 29;
const LINK_INFO_KIND: u16 = 1;
const LINK_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_MODE_NONE: u8 = 1;
/// Statistics are the largest part of a link's description, and are not used.
const EXT_MASK_SKIP_STATS: u32 = 8;

const ADDRESS_ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;

const ROUTE_DESTINATION: u16 = 1;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_MULTIPATH: u16 = 9;
const ROUTE_KIND_UNICAST: u8 = 1;
const ROUTE_KIND_LOCAL: u8 = 2;
const ROUTE_PROTOCOL_BOOT: u8 = 3;
const TABLE_MAIN: u8 = 254;

const INTERFACE_UP: u32 = 1;
/// `AF_INET` and `AF_INET6` in the widths used by messages.
const INET: u8 = 2;
const INET6: u16 = 10;

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mtu: u32,
}

/// One IPv4 route of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub destination: Subnet,
    /// Packets are delivered to this machine.
    pub local: bool,
    /// Indexes of the outgoing interfaces; several for a multipath route.
    pub interfaces: Vec<u32>,
}

/// A veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethPair<'a> {
    /// The end in the caller's namespace.
    pub outside: &'a str,
    /// The end that is created in `netns`. It is never visible outside of it.
    pub inside: &'a str,
    pub netns: BorrowedFd<'a>,
    pub mtu: u32,
}

pub fn loopback_up() -> Result<(), NetlinkError> {
    set_up("lo")
}

/// Configures address and default route of the named interface. Used inside a box.
pub fn configure_interface(
    name: &str,
    address: Ipv4Addr,
    prefix: u8,
    gateway: Ipv4Addr,
    mtu: u32,
) -> Result<(), NetlinkError> {
    let index = link_by_name(name)?.index;
    let set_mtu = Message::new(SET_LINK, REQUEST | ACKNOWLEDGE)
        .body(&link_body(index, 0))
        .number(LINK_MTU, mtu);
    Socket::open(Family::Route, "set the interface's MTU")?.request(set_mtu)?;
    without_ipv6_address(index)?;
    add_address(index, address, prefix)?;
    set_up(name)?;
    add_default_route(index, gateway)
}

/// Creates both ends, down and without addresses. The inner one is created directly in its namespace.
pub fn create_veth(pair: VethPair<'_>) -> Result<(), NetlinkError> {
    let VethPair {
        outside,
        inside,
        netns,
        mtu,
    } = pair;
    let Ok(netns) = u32::try_from(netns.as_raw_fd()) else {
        return Err(NetlinkError::new("create a veth pair", Errno::BADF));
    };
    let message = Message::new(NEW_LINK, REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE)
        .body(&link_body(0, 0))
        .text(LINK_NAME, outside)
        .number(LINK_MTU, mtu)
        .nest(LINK_INFO, |info| {
            info.text(LINK_INFO_KIND, "veth")
                .nest(LINK_INFO_DATA, |data| {
                    data.nest(VETH_INFO_PEER, |peer| {
                        peer.body(&link_body(0, 0))
                            .text(LINK_NAME, inside)
                            .number(LINK_MTU, mtu)
                            .number(LINK_NETNS_FD, netns)
                    })
                })
        });
    Socket::open(Family::Route, "create a veth pair")?.request(message)
}

/// Deletes the named link. Fails with `ENODEV` if it does not exist.
pub fn delete_link(name: &str) -> Result<(), NetlinkError> {
    let message = Message::new(DELETE_LINK, REQUEST | ACKNOWLEDGE)
        .body(&link_body(0, 0))
        .text(LINK_NAME, name);
    Socket::open(Family::Route, "delete a link")?.request(message)
}

pub fn set_up(name: &str) -> Result<(), NetlinkError> {
    let message = Message::new(NEW_LINK, REQUEST | ACKNOWLEDGE)
        .body(&link_body(0, INTERFACE_UP))
        .text(LINK_NAME, name);
    Socket::open(Family::Route, "set an interface up")?.request(message)
}

/// Keeps the kernel from assigning a link-local IPv6 address when the interface goes up. Does nothing on a
/// kernel without IPv6.
pub fn without_ipv6_address(index: u32) -> Result<(), NetlinkError> {
    let message = Message::new(SET_LINK, REQUEST | ACKNOWLEDGE)
        .body(&link_body(index, 0))
        .nest(LINK_AF_SPEC, |families| {
            families.nest(INET6, |inet6| {
                inet6.bytes(INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE])
            })
        });
    match Socket::open(Family::Route, "switch off IPv6 addresses")?.request(message) {
        Err(error) if error.errno() == Errno::AFNOSUPPORT => Ok(()),
        outcome => outcome,
    }
}

pub fn add_address(index: u32, address: Ipv4Addr, prefix: u8) -> Result<(), NetlinkError> {
    let mut body = [0; 8];
    body[0] = INET;
    body[1] = prefix;
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    let message = Message::new(NEW_ADDRESS, REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE)
        .body(&body)
        .bytes(ADDRESS_LOCAL, &address.octets())
        .bytes(ADDRESS_ADDRESS, &address.octets());
    Socket::open(Family::Route, "add an address")?.request(message)
}

pub fn add_default_route(index: u32, gateway: Ipv4Addr) -> Result<(), NetlinkError> {
    let mut body = [0; 12];
    body[0] = INET;
    body[4] = TABLE_MAIN;
    body[5] = ROUTE_PROTOCOL_BOOT;
    body[7] = ROUTE_KIND_UNICAST;
    let message = Message::new(NEW_ROUTE, REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE)
        .body(&body)
        .bytes(ROUTE_GATEWAY, &gateway.octets())
        .number(ROUTE_INTERFACE, index);
    Socket::open(Family::Route, "add the default route")?.request(message)
}

pub fn link_by_name(name: &str) -> Result<Link, NetlinkError> {
    one_link(
        Message::new(GET_LINK, REQUEST | ACKNOWLEDGE)
            .body(&link_body(0, 0))
            .text(LINK_NAME, name)
            .number(LINK_EXT_MASK, EXT_MASK_SKIP_STATS),
    )
}

pub fn link_by_index(index: u32) -> Result<Link, NetlinkError> {
    one_link(
        Message::new(GET_LINK, REQUEST | ACKNOWLEDGE)
            .body(&link_body(index, 0))
            .number(LINK_EXT_MASK, EXT_MASK_SKIP_STATS),
    )
}

fn one_link(request: Message) -> Result<Link, NetlinkError> {
    const OPERATION: &str = "look up a link";
    let mut found = None;
    Socket::open(Family::Route, OPERATION)?.query(request, |kind, body| {
        found = found.take().or_else(|| parse_link(kind, body));
    })?;
    found.ok_or_else(|| NetlinkError::new(OPERATION, Errno::NODEV))
}

/// All links of this namespace whose names start with `prefix`.
pub fn links_with_prefix(prefix: &str) -> Result<Vec<Link>, NetlinkError> {
    let request = Message::new(GET_LINK, REQUEST | DUMP)
        .body(&link_body(0, 0))
        .number(LINK_EXT_MASK, EXT_MASK_SKIP_STATS);
    let mut links = Vec::new();
    Socket::open(Family::Route, "list the links")?.query(request, |kind, body| {
        links.extend(parse_link(kind, body).filter(|link| link.name.starts_with(prefix)));
    })?;
    Ok(links)
}

/// All IPv4 routes of this namespace, of all tables including the local one.
pub fn routes() -> Result<Vec<Route>, NetlinkError> {
    let mut body = [0; 12];
    body[0] = INET;
    let request = Message::new(GET_ROUTE, REQUEST | DUMP).body(&body);
    let mut routes = Vec::new();
    Socket::open(Family::Route, "list the routes")?.query(request, |kind, body| {
        if kind == NEW_ROUTE {
            routes.extend(parse_route(body));
        }
    })?;
    Ok(routes)
}

fn parse_link(kind: u16, body: &[u8]) -> Option<Link> {
    let (header, rest) = body.split_first_chunk::<16>()?;
    if kind != NEW_LINK {
        return None;
    }
    let attributes = Attributes::new(rest);
    Some(Link {
        index: u32::from_ne_bytes([header[4], header[5], header[6], header[7]]),
        name: attributes.first(LINK_NAME)?.text().into_owned(),
        mtu: attributes.first(LINK_MTU)?.number()?,
    })
}

fn parse_route(body: &[u8]) -> Option<Route> {
    let (header, rest) = body.split_first_chunk::<12>()?;
    let attributes = Attributes::new(rest);
    let mut interfaces: Vec<u32> = attributes
        .first(ROUTE_INTERFACE)
        .and_then(|attribute| attribute.number())
        .into_iter()
        .collect();
    if let Some(multipath) = attributes.first(ROUTE_MULTIPATH) {
        interfaces.extend(next_hops(multipath.value));
    }
    Some(Route {
        destination: Subnet::new(
            attributes
                .first(ROUTE_DESTINATION)
                .and_then(|attribute| attribute.address())
                .unwrap_or(Ipv4Addr::UNSPECIFIED),
            header[1],
        ),
        local: header[7] == ROUTE_KIND_LOCAL,
        interfaces,
    })
}

/// The interfaces of a multipath route: a list of `rtnexthop`, each with its own length.
fn next_hops(mut bytes: &[u8]) -> Vec<u32> {
    let mut interfaces = Vec::new();
    while let Some(hop) = bytes.first_chunk::<8>() {
        let length = usize::from(u16::from_ne_bytes([hop[0], hop[1]]));
        if length < hop.len() {
            break;
        }
        interfaces.push(u32::from_ne_bytes([hop[4], hop[5], hop[6], hop[7]]));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    interfaces
}

/// `struct ifinfomsg`: the interface and the flags to set.
fn link_body(index: u32, flags: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&flags.to_ne_bytes());
    body
}
