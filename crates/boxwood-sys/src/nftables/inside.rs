//! The packet filter inside a box's own network namespace.
//!
//! Init installs these rules before it drops its capabilities, so commands in the box cannot remove them.
//! Without root they are the only filter. With root they are the second one, independent of the host's
//! table.

use std::net::Ipv4Addr;

use super::{Batch, ChainKind, Hook, Name, Refusal, Rule, State, Transport};
use crate::netlink::{NetlinkError, Subnet};
use rustix::io::Errno;

const TABLE: &str = "boxwood";

/// Networks that no box may reach on any host: the host itself, link-local neighbours, and metadata
/// services of clouds.
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

/// What the rules need from the host.
#[derive(Clone, Debug, Default)]
pub struct InsideRules {
    /// Name servers: port 53 is reachable even if the address is denied.
    pub resolvers: Vec<Ipv4Addr>,
    /// Denied in addition to [`NEVER_REACHABLE`]: addresses of the host, and networks set by the operator.
    pub denied: Vec<Subnet>,
}

/// Filters all traffic of the calling process's network namespace, except on loopback.
pub fn guard_inside(rules: &InsideRules) -> Result<(), NetlinkError> {
    match install(rules, Refusal::Reject) {
        Err(error) if error.errno() == Errno::NOENT => install(rules, Refusal::Drop),
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
