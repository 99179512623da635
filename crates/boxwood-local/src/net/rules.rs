//! What a box may and may not send, and who may send to it.
//!
//! One `inet` table per daemon stands while it has a networked box. Its rules know boxes by the start
//! of an interface's name, so they are the same for one box and a thousand. They are installed as one
//! transaction; if a kernel cannot take one of them, no box gets a network.

use std::collections::BTreeSet;

use boxwood_sys::netlink::{NetlinkError, Subnet};
use boxwood_sys::nftables::{
    self, Batch, Chain, ChainKind, Hook, NEVER_REACHABLE, Name, Refusal, Rule, State, Transport,
};
use rustix::io::Errno;

use super::resolvers::Resolvers;
use super::{LINK_PREFIX, NetError, Tag, forwarding};

pub(super) const TABLE_PREFIX: &str = "boxwood-";
/// A chain of this name says: forwarding was off on this interface and is on because of us.
const OPENED_PREFIX: &str = "opened-";

const PRIORITY_RAW: i32 = -300;
const PRIORITY_FILTER: i32 = 0;
const PRIORITY_SOURCE_NAT: i32 = 100;
const DNS: u16 = 53;
/// The tables of the older iptables, which `nf_tables` knows nothing about.
const LEGACY_TABLES: &str = "/proc/net/ip_tables_names";

/// Everything the table depends on; another value means another table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostRules {
    pub(super) pool: Subnet,
    pub(super) resolvers: Resolvers,
    pub(super) denied: Vec<Subnet>,
    pub(super) opened: BTreeSet<String>,
}

pub(super) fn install(tag: &Tag, rules: &HostRules) -> Result<(), NetError> {
    let installed = match batch(tag, rules, Refusal::Answer).commit() {
        // A kernel without `reject` can still drop; whatever else is missing stays an error.
        Err(error) if error.errno() == Errno::NOENT => batch(tag, rules, Refusal::Silence).commit(),
        outcome => outcome,
    };
    installed.map_err(|source| NetError::PacketFilter { source })
}

fn batch(tag: &Tag, rules: &HostRules, refusal: Refusal) -> Batch {
    let prefix = tag.links();
    let ours = Name::Prefix(&prefix);
    let any_box = Name::Prefix(LINK_PREFIX);
    let from_box = || Rule::new().arrives_by(ours);
    let to_box = || Rule::new().leaves_by(ours);
    let dns_ports = [Transport::Udp, Transport::Tcp];
    let mut batch = Batch::replacing(&tag.table());

    // A box sends IPv4, from its own address.
    batch.base_chain("source", ChainKind::Filter, Hook::Prerouting, PRIORITY_RAW);
    batch.rule("source", from_box().not_ipv4().drop_silently());
    batch.rule("source", from_box().not_from(rules.pool).drop_silently());
    batch.rule("source", from_box().source_is_elsewhere().drop_silently());

    // Nothing on this host listens to a box, except a name server that the host itself uses.
    batch.base_chain("host", ChainKind::Filter, Hook::Input, PRIORITY_FILTER);
    for resolver in rules.resolvers.on_host() {
        for transport in dns_ports {
            let query = from_box().to(Subnet::host(*resolver)).port(transport, DNS);
            batch.rule("host", query.accept());
        }
    }
    batch.rule("host", from_box().refuse(refusal));

    // Nor does anything on this host call one: its other users have no business there.
    batch.base_chain("caller", ChainKind::Filter, Hook::Output, PRIORITY_FILTER);
    batch.rule("caller", to_box().state(State::Known).accept());
    batch.rule("caller", to_box().drop_silently());

    batch.base_chain("forward", ChainKind::Filter, Hook::Forward, PRIORITY_FILTER);
    batch.rule("forward", from_box().leaves_by(any_box).refuse(refusal));
    // Conntrack does not translate what it cannot place, and it would leave with a private source.
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

    // Forwarding that we switched on is for boxes. Answers to others and redirected ports pass, so
    // that a container engine started meanwhile works.
    for interface in &rules.opened {
        let chain = format!("{OPENED_PREFIX}{interface}");
        batch.chain(&chain);
        let stranger = Rule::new().state(State::New).not_redirected();
        batch.rule(&chain, stranger.drop_silently());
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

/// Undoes everything that carries our tag: forwarding, rules in other programs' chains, the table.
pub(super) fn remove(tag: &Tag) -> Result<(), NetError> {
    let removal = |source| NetError::PacketFilterRemoval { source };
    let table = tag.table();
    let chains = nftables::chains().map_err(removal)?;
    let opened_by = |belongs: &dyn Fn(&Chain) -> bool| -> BTreeSet<String> {
        chains
            .iter()
            .filter(|chain| belongs(chain))
            .filter_map(|chain| chain.name.strip_prefix(OPENED_PREFIX))
            .map(str::to_owned)
            .collect()
    };
    let ours = opened_by(&|chain| chain.table == table);
    let others = opened_by(&|chain| chain.table != table && chain.table.starts_with(TABLE_PREFIX));
    // An interface that another daemon counts on as well is closed by the last of them.
    let to_close: BTreeSet<String> = ours.difference(&others).cloned().collect();
    let closed = forwarding::close(&to_close);
    let mut withdrawn = Ok(());
    for chain in chains.iter().filter(|chain| is_foreign_forward(chain)) {
        let outcome = nftables::remove_marked_rules(chain, &table);
        withdrawn = withdrawn.and(outcome.map(|_| ()).map_err(removal));
    }
    let deleted = match nftables::delete_table(&table) {
        Err(error) if error.errno() == Errno::NOENT => Ok(()),
        outcome => outcome.map_err(removal),
    };
    closed.and(withdrawn).and(deleted)
}

/// Whether the table of this instance stands.
pub(super) fn are_installed(tag: &Tag) -> Result<bool, NetError> {
    let chains = nftables::chains().map_err(|source| NetError::PacketFilter { source })?;
    let table = tag.table();
    Ok(chains.iter().any(|chain| chain.table == table))
}

/// The chains that an interface was opened for by another daemon, so that we count on it as well.
pub(super) fn opened_by_anyone() -> Result<BTreeSet<String>, NetError> {
    let chains = nftables::chains().map_err(|source| NetError::PacketFilter { source })?;
    Ok(chains
        .iter()
        .filter(|chain| chain.table.starts_with(TABLE_PREFIX))
        .filter_map(|chain| chain.name.strip_prefix(OPENED_PREFIX))
        .map(str::to_owned)
        .collect())
}

/// What may still stop a box that has everything from us, in words for the operator: filters that
/// `nf_tables` does not show, or whose verdict no policy tells.
pub fn caution() -> Option<String> {
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

/// Lets boxes through chains that drop by default. Our own chain has judged each packet by then (or
/// judges it next): it must pass both, so accepting it in the other one gives nothing away.
pub(super) fn pass_obstacles(
    tag: &Tag,
    passed: &mut BTreeSet<(String, String)>,
) -> Result<(), NetError> {
    let chains = nftables::chains().map_err(|source| NetError::PacketFilter { source })?;
    let prefix = tag.links();
    for chain in chains
        .iter()
        .filter(|chain| chain.drops_by_default && is_foreign_forward(chain))
    {
        let key = (chain.table.clone(), chain.name.clone());
        if passed.contains(&key) {
            continue;
        }
        let pass = vec![
            Rule::new().arrives_by(Name::Prefix(&prefix)).accept(),
            Rule::new().leaves_by(Name::Prefix(&prefix)).accept(),
        ];
        let fail = |source: NetlinkError| NetError::Obstacle {
            table: chain.table.clone(),
            chain: chain.name.clone(),
            source,
        };
        nftables::remove_marked_rules(chain, &tag.table()).map_err(fail)?;
        nftables::insert_marked_rules(chain, &tag.table(), pass).map_err(fail)?;
        passed.insert(key);
    }
    Ok(())
}

fn is_foreign_forward(chain: &Chain) -> bool {
    chain.sees_ipv4_at(Hook::Forward) && !chain.table.starts_with(TABLE_PREFIX)
}
