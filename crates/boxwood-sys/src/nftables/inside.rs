//! The packet filter inside a box's own network namespace.
//!
//! Init installs these rules before it gives up its capabilities; no command in the box can remove them.
//! A daemon that is not root cannot filter outside the box, so they are its only filter. As root they
//! are the second one, after the host's own table, and need nothing of it.

use std::net::Ipv4Addr;

use super::{Batch, ChainKind, Hook, Name, Refusal, Rule, State, Transport};
use crate::netlink::{NetlinkError, Subnet};
use rustix::io::Errno;

const TABLE: &str = "boxwood";

/// Where no box has any business, on whatever host: the host itself, link-local neighbours, and the
/// addresses at which clouds hand out credentials.
pub const NEVER_REACHABLE: [Subnet; 8] = [
    Subnet::new(Ipv4Addr::UNSPECIFIED, 8),
    Subnet::new(Ipv4Addr::LOCALHOST, 8),
    // Link-local; the metadata address of most clouds is 169.254.169.254.
    Subnet::new(Ipv4Addr::new(169, 254, 0, 0), 16),
    // Metadata elsewhere: Alibaba, Oracle, Azure.
    Subnet::host(Ipv4Addr::new(100, 100, 100, 200)),
    Subnet::host(Ipv4Addr::new(192, 0, 0, 192)),
    Subnet::host(Ipv4Addr::new(168, 63, 129, 16)),
    // Multicast, then reserved and broadcast.
    Subnet::new(Ipv4Addr::new(224, 0, 0, 0), 4),
    Subnet::new(Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// What the rules need to know about this host.
#[derive(Clone, Debug, Default)]
pub struct InsideRules {
    /// Name servers: port 53 of them may be reached even where the address itself may not.
    pub resolvers: Vec<Ipv4Addr>,
    /// Denied beside [`NEVER_REACHABLE`]: the host's own addresses, and what the operator named.
    pub denied: Vec<Subnet>,
}

/// Filters what leaves and enters the calling process's network namespace, except its loopback.
pub fn guard_inside(rules: &InsideRules) -> Result<(), NetlinkError> {
    match install(rules, Refusal::Answer) {
        Err(error) if error.errno() == Errno::NOENT => install(rules, Refusal::Silence),
        outcome => outcome,
    }
}

fn install(rules: &InsideRules, refusal: Refusal) -> Result<(), NetlinkError> {
    let loopback = Name::Exact("lo");
    let mut batch = Batch::replacing(TABLE);

    batch.base_chain("output", ChainKind::Filter, Hook::Output, 0);
    batch.rule("output", Rule::new().leaves_by(loopback).accept());
    batch.rule("output", Rule::new().not_ipv4().refuse(refusal));
    for resolver in &rules.resolvers {
        for transport in [Transport::Udp, Transport::Tcp] {
            let query = Rule::new().to(Subnet::host(*resolver));
            batch.rule("output", query.port(transport, 53).accept());
        }
    }
    for denied in NEVER_REACHABLE.iter().chain(&rules.denied) {
        batch.rule("output", Rule::new().to(*denied).refuse(refusal));
    }

    batch.base_chain("input", ChainKind::Filter, Hook::Input, 0);
    batch.rule("input", Rule::new().arrives_by(loopback).accept());
    batch.rule("input", Rule::new().state(State::Known).accept());
    batch.rule("input", Rule::new().drop_silently());

    batch.base_chain("forward", ChainKind::Filter, Hook::Forward, 0);
    batch.rule("forward", Rule::new().drop_silently());
    batch.commit()
}
