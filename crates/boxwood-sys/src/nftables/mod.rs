//! Installs and removes `nf_tables` tables.
//!
//! The kernel applies a batch of chains and rules as one transaction. Which packets are accepted is decided
//! by [`guard_inside`] for the inside of a box, and by `boxwood-local` for the host.

mod chains;
mod inside;
mod rule;

use crate::netlink::{Family, Message, NetlinkError, Socket};

pub use chains::{Chain, chains, insert_marked_rules, remove_marked_rules};
pub use inside::{InsideRules, NEVER_REACHABLE, guard_inside};
pub use rule::{Name, Refusal, Rule, State, Transport};

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const GET_CHAIN: u16 = 4;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const DELETE_RULE: u16 = 8;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USERDATA: u16 = 7;

/// `NFPROTO_INET`: IPv4 and IPv6.
const INET: u8 = 1;
const IPV4: u8 = 2;

/// The hook at which a chain is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    Filter,
    Nat,
}

/// Changes that are applied together.
#[derive(Debug)]
pub struct Batch {
    table: String,
    messages: Vec<Message>,
}

impl Batch {
    /// Starts an `inet` table from scratch. An existing table of that name is replaced in the same
    /// transaction, so there is no moment without rules.
    pub fn replacing(table: &str) -> Self {
        let mut batch = Self {
            table: table.to_owned(),
            messages: Vec::new(),
        };
        // Deleting a missing table would fail the batch; creating an existing one does not.
        batch.push(batch.table_message(NEW_TABLE, CREATE));
        batch.push(batch.table_message(DELETE_TABLE, 0));
        batch.push(batch.table_message(NEW_TABLE, CREATE));
        batch
    }

    pub fn base_chain(&mut self, name: &str, kind: ChainKind, hook: Hook, priority: i32) {
        let message = message(NEW_CHAIN, CREATE | ACKNOWLEDGE, INET)
            .text(CHAIN_TABLE, &self.table)
            .text(CHAIN_NAME, name)
            .nest(CHAIN_HOOK, |nest| {
                nest.number_be(HOOK_NUMBER, hook as u32)
                    .number_be(HOOK_PRIORITY, priority.cast_unsigned())
            })
            .text(
                CHAIN_TYPE,
                match kind {
                    ChainKind::Filter => "filter",
                    ChainKind::Nat => "nat",
                },
            );
        self.push(message);
    }

    /// A chain that is entered only by a jump.
    pub fn chain(&mut self, name: &str) {
        let message = message(NEW_CHAIN, CREATE | ACKNOWLEDGE, INET)
            .text(CHAIN_TABLE, &self.table)
            .text(CHAIN_NAME, name);
        self.push(message);
    }

    pub fn rule(&mut self, chain: &str, rule: Rule) {
        let message = message(NEW_RULE, CREATE | APPEND | ACKNOWLEDGE, INET)
            .text(RULE_TABLE, &self.table)
            .text(RULE_CHAIN, chain)
            .nest(RULE_EXPRESSIONS, |nest| rule.encode(nest));
        self.push(message);
    }

    pub fn commit(self) -> Result<(), NetlinkError> {
        commit("install the packet filter", self.messages)
    }

    fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    fn table_message(&self, kind: u16, flags: u16) -> Message {
        message(kind, flags | ACKNOWLEDGE, INET).text(TABLE_NAME, &self.table)
    }
}

/// Deletes the table with its content. Fails with `ENOENT` if it does not exist.
pub fn delete_table(table: &str) -> Result<(), NetlinkError> {
    let delete = message(DELETE_TABLE, ACKNOWLEDGE, INET).text(TABLE_NAME, table);
    commit("remove the packet filter", vec![delete])
}

fn commit(operation: &'static str, messages: Vec<Message>) -> Result<(), NetlinkError> {
    let expected = messages.len();
    let mut bytes = Vec::new();
    let mut sequence = 1;
    let mut append = |message: Message| {
        message.append_to(&mut bytes, sequence);
        sequence += 1;
    };
    append(batch_message(BATCH_BEGIN));
    messages.into_iter().for_each(&mut append);
    append(batch_message(BATCH_END));
    let socket = Socket::open(Family::Netfilter, operation)?;
    socket.send(&bytes)?;
    socket.await_acknowledgements(expected)
}

fn batch_message(kind: u16) -> Message {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    Message::new(kind, REQUEST).body(&[0, 0, high, low])
}

fn message(kind: u16, flags: u16, family: u8) -> Message {
    Message::new(SUBSYSTEM << 8 | kind, REQUEST | flags).body(&[family, 0, 0, 0])
}
