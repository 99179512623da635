//! The packet filter on the host.
//!
//! One `inet` table per daemon, installed while it has a box with a network. Its rules match boxes by the
//! prefix of the interface name, so they do not depend on the number of boxes. They are installed in one
//! transaction; if the kernel rejects one of them, no box gets a network.

use std::collections::BTreeSet;

use boxwood_sys::netlink::{NetlinkError, Subnet};
use boxwood_sys::nftables::{
    self, Batch, Chain, ChainKind, Hook, NEVER_REACHABLE, Name, Refusal, Rule, State, Transport,
};
use rustix::io::Errno;

use super::resolvers::Resolvers;
use super::{LINK_PREFIX, NetError, Tag, forwarding};

pub(super) const TABLE_PREFIX: &str = "boxwood-";
/// A chain with this prefix records that forwarding was off on the interface and was enabled by us.
const OPENED_PREFIX: &str = "opened-";

const PRIORITY_RAW: i32 = -300;
const PRIORITY_FILTER: i32 = 0;
const PRIORITY_SOURCE_NAT: i32 = 100;
const DNS: u16 = 53;
/// The tables of legacy iptables, which `nf_tables` does not list.
const LEGACY_TABLES: &str = "/proc/net/ip_tables_names";

/// Everything that determines the table's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostRules {
    pub(super) pool: Subnet,
    pub(super) resolvers: Resolvers,
    pub(super) denied: Vec<Subnet>,
    pub(super) opened: BTreeSet<String>,
}

pub(super) fn install(tag: &Tag, rules: &HostRules) -> Result<(), NetError> {
    let installed = match batch(tag, rules, Refusal::Reject).commit() {
        // A kernel without `reject` can still drop packets. Any other missing feature is an error.
        Err(error) if error.errno() == Errno::NOENT => batch(tag, rules, Refusal::Drop).commit(),
        outcome => outcome,
    };
    installed.map_err(|source| NetError::PacketFilter { source })
}

fn batch(tag: &Tag, rules: &HostRules, refusal: Refusal) -> Batch {
    let prefix = tag.links();
    let box_links = Name::Prefix(&prefix);
    let any_box = Name::Prefix(LINK_PREFIX);
    let from_box = || Rule::new().arrives_by(box_links);
    let to_box = || Rule::new().leaves_by(box_links);
    let dns_ports = [Transport::Udp, Transport::Tcp];
    let mut batch = Batch::replacing(&tag.table());

    // A box sends IPv4 from its own address only.
    batch.base_chain("source", ChainKind::Filter, Hook::Prerouting, PRIORITY_RAW);
    batch.rule("source", from_box().not_ipv4().drop_silently());
    batch.rule("source", from_box().not_from(rules.pool).drop_silently());
    batch.rule("source", from_box().source_is_elsewhere().drop_silently());

    // A box cannot connect to the host, except to a name server that runs there.
    batch.base_chain("host", ChainKind::Filter, Hook::Input, PRIORITY_FILTER);
    for resolver in rules.resolvers.on_host() {
        for transport in dns_ports {
            let query = from_box().to(Subnet::host(*resolver)).port(transport, DNS);
            batch.rule("host", query.accept());
        }
    }
    batch.rule("host", from_box().refuse(refusal));

    // The host and its users cannot connect to a box either.
    batch.base_chain("caller", ChainKind::Filter, Hook::Output, PRIORITY_FILTER);
    batch.rule("caller", to_box().state(State::Known).accept());
    batch.rule("caller", to_box().drop_silently());

    batch.base_chain("forward", ChainKind::Filter, Hook::Forward, PRIORITY_FILTER);
    batch.rule("forward", from_box().leaves_by(any_box).refuse(refusal));
    // Conntrack does not translate invalid packets; they would leave with a private source address.
    batch.rule("forward", from_box().state(State::Invalid).drop_silently());
    for resolver in rules.resolvers.addresses() {
        for transport in dns_ports {
            let query = from_box().to(Subnet::host(*resolver)).port(transport, DNS);
            batch.rule("forward", query.accept());
        }
    }
    for denied in NEVER_REACHABLE.iter().chain(&rules.denied) {
        batch.rule("forward", from_box().to(*denied).refuse(refusal));
    }
    batch.rule("forward", from_box().to(rules.pool).refuse(refusal));
    batch.rule("forward", from_box().accept());
    batch.rule("forward", to_box().state(State::Known).accept());
    batch.rule("forward", to_box().drop_silently());

    // Forwarding that we enabled is for boxes. Replies and redirected ports pass, so that a container engine
    // that is started meanwhile works.
    for interface in &rules.opened {
        let chain = format!("{OPENED_PREFIX}{interface}");
        batch.chain(&chain);
        let new_connections = Rule::new().state(State::New).not_redirected();
        batch.rule(&chain, new_connections.drop_silently());
        let arrival = Rule::new()
            .arrives_by(Name::Exact(interface))
            .leaves_elsewhere_than(any_box);
        batch.rule("forward", arrival.jump(&chain));
    }

    batch.base_chain(
        "nat",
        ChainKind::Nat,
        Hook::Postrouting,
        PRIORITY_SOURCE_NAT,
    );
    batch.rule("nat", from_box().from(rules.pool).masquerade());
    batch
}

/// Reverts everything with our tag: forwarding, rules in chains of other programs, the table.
pub(super) fn remove(tag: &Tag) -> Result<(), NetError> {
    let removal = |source| NetError::PacketFilterRemoval { source };
    let table = tag.table();
    let chains = nftables::chains().map_err(removal)?;
    let opened_here = opened(&chains, |of| of == table);
    let opened_elsewhere = opened(&chains, |of| of != table);
    // If another daemon uses the interface too, the last daemon disables forwarding.
    let to_close: BTreeSet<String> = opened_here.difference(&opened_elsewhere).cloned().collect();
    let closed = forwarding::close(&to_close);
    let mut withdrawn = Ok(());
    for chain in chains.iter().filter(|chain| is_foreign_forward(chain)) {
        let outcome = nftables::remove_marked_rules(chain, &table);
        withdrawn = withdrawn.and(outcome.map_err(removal));
    }
    let deleted = match nftables::delete_table(&table) {
        Err(error) if error.errno() == Errno::NOENT => Ok(()),
        outcome => outcome.map_err(removal),
    };
    closed.and(withdrawn).and(deleted)
}

/// Returns true if the table of this instance exists.
pub(super) fn are_installed(tag: &Tag) -> Result<bool, NetError> {
    let chains = nftables::chains().map_err(|source| NetError::PacketFilter { source })?;
    let table = tag.table();
    Ok(chains.iter().any(|chain| chain.table == table))
}

/// The interfaces that any daemon enabled forwarding on.
pub(super) fn opened_by_any_daemon() -> Result<BTreeSet<String>, NetError> {
    let chains = nftables::chains().map_err(|source| NetError::PacketFilter { source })?;
    Ok(opened(&chains, |_| true))
}

/// The interfaces that daemons enabled forwarding on, by their tables.
fn opened(chains: &[Chain], belongs: impl Fn(&str) -> bool) -> BTreeSet<String> {
    chains
        .iter()
        .filter(|chain| chain.table.starts_with(TABLE_PREFIX) && belongs(&chain.table))
        .filter_map(|chain| chain.name.strip_prefix(OPENED_PREFIX))
        .map(str::to_owned)
        .collect()
}

/// A warning for the operator about packet filters that may block boxes and that `nf_tables` does not show or
/// that have no policy to check.
pub fn firewall_warning() -> Option<String> {
    let legacy = std::fs::read_to_string(LEGACY_TABLES).unwrap_or_default();
    if legacy.lines().any(|table| table == "filter") {
        return Some(
            "iptables-legacy is in use and may drop what boxes send; if a box resolves no names, run \
             `iptables-legacy -I FORWARD -i bxw+ -j ACCEPT` and the same with `-o bxw+`"
                .to_owned(),
        );
    }
    let chains = nftables::chains().ok()?;
    chains
        .iter()
        .any(|chain| chain.table == "firewalld")
        .then(|| {
            "firewalld may reject what boxes send; if a box resolves no names, run \
         `firewall-cmd --permanent --zone=trusted --add-interface=bxw+` and reload it"
                .to_owned()
        })
}

/// Accepts packets of boxes in chains that drop by default. A packet must pass our own chain as well, so this
/// weakens nothing.
pub(super) fn allow_in_foreign_chains(
    tag: &Tag,
    allowed_in: &mut BTreeSet<(String, String)>,
) -> Result<(), NetError> {
    let chains = nftables::chains().map_err(|source| NetError::PacketFilter { source })?;
    let prefix = tag.links();
    for chain in chains
        .iter()
        .filter(|chain| chain.drops_by_default && is_foreign_forward(chain))
    {
        let key = (chain.table.clone(), chain.name.clone());
        if allowed_in.contains(&key) {
            continue;
        }
        let pass = vec![
            Rule::new().arrives_by(Name::Prefix(&prefix)).accept(),
            Rule::new().leaves_by(Name::Prefix(&prefix)).accept(),
        ];
        let fail = |source: NetlinkError| NetError::ForeignChain {
            table: chain.table.clone(),
            chain: chain.name.clone(),
            source,
        };
        nftables::remove_marked_rules(chain, &tag.table()).map_err(fail)?;
        nftables::insert_marked_rules(chain, &tag.table(), pass).map_err(fail)?;
        allowed_in.insert(key);
    }
    Ok(())
}

fn is_foreign_forward(chain: &Chain) -> bool {
    chain.sees_ipv4_at(Hook::Forward) && !chain.table.starts_with(TABLE_PREFIX)
}
