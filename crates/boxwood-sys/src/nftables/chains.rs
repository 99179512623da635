//! Lists the chains of all tables, and adds marked rules to chains of other programs.
//!
//! A packet must pass every chain at a hook. If the forward chain of another program drops by default
//! (Docker's does), an `accept` in our own table is not enough. The added rules carry a mark in their user
//! data, by which any daemon can find and remove them.

use rustix::io::Errno;

use super::{
    CHAIN_HOOK, CHAIN_NAME, CHAIN_POLICY, CHAIN_TABLE, CREATE, DELETE_RULE, DUMP, GET_CHAIN,
    GET_RULE, HOOK_NUMBER, Hook, NEW_RULE, RULE_CHAIN, RULE_EXPRESSIONS, RULE_HANDLE, RULE_TABLE,
    RULE_USERDATA, Rule, commit, message,
};
use crate::netlink::{Attributes, Family, NetlinkError, Socket};

const POLICY_DROP: u32 = 0;
/// `NFTNL_UDATA_RULE_COMMENT`: shown by `nft list` as the rule's comment.
const USERDATA_COMMENT: u8 = 0;
/// Any address family.
const ALL: u8 = 0;

/// A chain of any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    family: u8,
    pub table: String,
    pub name: String,
    hook: Option<u32>,
    /// The policy for packets that no rule decides about.
    pub drops_by_default: bool,
}

impl Chain {
    /// Returns true if IPv4 packets pass the chain at `hook`.
    pub fn sees_ipv4_at(&self, hook: Hook) -> bool {
        self.hook == Some(hook as u32) && (self.family == super::INET || self.family == super::IPV4)
    }
}

pub fn chains() -> Result<Vec<Chain>, NetlinkError> {
    let mut chains = Vec::new();
    let socket = Socket::open(Family::Netfilter, "list the packet filter's chains")?;
    socket.query(message(GET_CHAIN, DUMP, ALL), |_, body| {
        chains.extend(parse(body));
    })?;
    Ok(chains)
}

/// Inserts `rules` at the head of a chain, each marked with `mark`.
pub fn insert_marked_rules(
    chain: &Chain,
    mark: &str,
    rules: Vec<Rule>,
) -> Result<(), NetlinkError> {
    let messages = rules
        .into_iter()
        .map(|rule| {
            // Without APPEND the rule is inserted at the head.
            message(NEW_RULE, CREATE | super::ACKNOWLEDGE, chain.family)
                .text(RULE_TABLE, &chain.table)
                .text(RULE_CHAIN, &chain.name)
                .nest(RULE_EXPRESSIONS, |nest| rule.encode(nest))
                .bytes(RULE_USERDATA, &comment(mark))
        })
        .collect();
    commit(
        "add rules to the packet filter of another program",
        messages,
    )
}

/// Removes the rules of `chain` with `mark`.
pub fn remove_marked_rules(chain: &Chain, mark: &str) -> Result<(), NetlinkError> {
    const OPERATION: &str = "remove rules from the packet filter of another program";
    let request = message(GET_RULE, DUMP, chain.family)
        .text(RULE_TABLE, &chain.table)
        .text(RULE_CHAIN, &chain.name);
    let expected_comment = comment(mark);
    let mut handles = Vec::new();
    Socket::open(Family::Netfilter, OPERATION)?.query(request, |_, body| {
        let attributes = Attributes::new(body.get(4..).unwrap_or_default());
        let text = |kind| {
            attributes
                .first(kind)
                .map(|found| found.text().into_owned())
        };
        let is_marked = attributes
            .first(RULE_USERDATA)
            .is_some_and(|data| data.value == expected_comment);
        // Old kernels ignore the chain in the request and dump the whole table.
        let is_in_chain = text(RULE_TABLE).as_deref() == Some(&chain.table)
            && text(RULE_CHAIN).as_deref() == Some(&chain.name);
        if let (true, true, Some(handle)) = (is_marked, is_in_chain, attributes.first(RULE_HANDLE))
        {
            handles.push(handle.value.to_vec());
        }
    })?;
    if handles.is_empty() {
        return Ok(());
    }
    let messages = handles
        .iter()
        .map(|handle| {
            message(DELETE_RULE, super::ACKNOWLEDGE, chain.family)
                .text(RULE_TABLE, &chain.table)
                .text(RULE_CHAIN, &chain.name)
                .bytes(RULE_HANDLE, handle)
        })
        .collect();
    match commit(OPERATION, messages) {
        // The other program removed its chain meanwhile, and our rules with it.
        Err(error) if error.errno() == Errno::NOENT => Ok(()),
        outcome => outcome,
    }
}

fn comment(mark: &str) -> Vec<u8> {
    let length = u8::try_from(mark.len() + 1).unwrap_or(u8::MAX);
    let mut data = vec![USERDATA_COMMENT, length];
    data.extend(mark.bytes().take(usize::from(length) - 1));
    data.push(0);
    data
}

fn parse(body: &[u8]) -> Option<Chain> {
    let (header, rest) = body.split_first_chunk::<4>()?;
    let attributes = Attributes::new(rest);
    let text = |kind| {
        attributes
            .first(kind)
            .map(|found| found.text().into_owned())
    };
    let policy = attributes.first(CHAIN_POLICY);
    Some(Chain {
        family: header[0],
        table: text(CHAIN_TABLE)?,
        name: text(CHAIN_NAME)?,
        hook: attributes
            .first(CHAIN_HOOK)
            .and_then(|hook| hook.nested().first(HOOK_NUMBER))
            .and_then(|number| number.number_be()),
        drops_by_default: policy.and_then(|policy| policy.number_be()) == Some(POLICY_DROP),
    })
}
