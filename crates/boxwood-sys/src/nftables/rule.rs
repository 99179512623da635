//! One rule: conditions on a packet, then a verdict.
//!
//! Written left to right, `Rule::new().arrives_by(…).to(…).refuse(…)`, and translated to the kernel's
//! instructions: load a field into a register, compare it, return a verdict.

use crate::netlink::{Message, Subnet};

const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;

const REGISTER: u32 = 1;
const VERDICT_REGISTER: u32 = 0;

const META_IN_NAME: u32 = 6;
const META_OUT_NAME: u32 = 7;
const META_FAMILY: u32 = 15;
const META_TRANSPORT: u32 = 16;
const CT_STATE: u32 = 0;
const CT_STATUS: u32 = 2;
const CT_STATUS_DESTINATION_NAT: u32 = 1 << 5;

const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const IPV4_SOURCE: u32 = 12;
const IPV4_DESTINATION: u32 = 16;
const DESTINATION_PORT: u32 = 2;

const FIB_RESULT_INTERFACE: u32 = 1;
const FIB_SOURCE: u32 = 1;
const FIB_IN_INTERFACE: u32 = 8;
const FIB_PRESENT: u32 = 32;

const REJECT_ANY_FAMILY: u32 = 2;
const REJECT_ADMIN_PROHIBITED: u8 = 3;

const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const JUMP: u32 = (-3_i32).cast_unsigned();

/// An interface name, or a prefix of one.
#[derive(Clone, Copy, Debug)]
pub enum Name<'a> {
    Exact(&'a str),
    Prefix(&'a str),
}

/// The conntrack state of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Invalid = 1,
    /// Belongs to a known connection, or is an ICMP error about one.
    Known = 2 | 4,
    New = 8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp = 6,
    Udp = 17,
}

/// How a refused packet is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sender gets an ICMP error ("administratively prohibited").
    Reject,
    /// Dropped, for kernels without `reject`; the sender runs into a timeout.
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal = 0,
    Different = 1,
}

#[derive(Clone, Debug)]
enum Expression {
    Meta(u32),
    Conntrack(u32),
    Payload { base: u32, offset: u32, length: u32 },
    ReverseRoute,
    Mask(Vec<u8>),
    Compare(Comparison, Vec<u8>),
    Verdict(u32, Option<String>),
    Reject,
    Masquerade,
}

#[derive(Clone, Debug, Default)]
pub struct Rule {
    expressions: Vec<Expression>,
}

impl Rule {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn arrives_by(self, interface: Name<'_>) -> Self {
        self.interface(META_IN_NAME, Comparison::Equal, interface)
    }

    #[must_use]
    pub fn leaves_by(self, interface: Name<'_>) -> Self {
        self.interface(META_OUT_NAME, Comparison::Equal, interface)
    }

    #[must_use]
    pub fn leaves_elsewhere_than(self, interface: Name<'_>) -> Self {
        self.interface(META_OUT_NAME, Comparison::Different, interface)
    }

    #[must_use]
    pub fn ipv4(self) -> Self {
        self.family(Comparison::Equal)
    }

    #[must_use]
    pub fn not_ipv4(self) -> Self {
        self.family(Comparison::Different)
    }

    #[must_use]
    pub fn to(self, subnet: Subnet) -> Self {
        self.ipv4()
            .address(IPV4_DESTINATION, Comparison::Equal, subnet)
    }

    #[must_use]
    pub fn from(self, subnet: Subnet) -> Self {
        self.ipv4().address(IPV4_SOURCE, Comparison::Equal, subnet)
    }

    #[must_use]
    pub fn not_from(self, subnet: Subnet) -> Self {
        self.ipv4()
            .address(IPV4_SOURCE, Comparison::Different, subnet)
    }

    #[must_use]
    pub fn port(self, transport: Transport, port: u16) -> Self {
        self.with(Expression::Meta(META_TRANSPORT))
            .with(Expression::Compare(
                Comparison::Equal,
                vec![transport as u8],
            ))
            .with(Expression::Payload {
                base: TRANSPORT_HEADER,
                offset: DESTINATION_PORT,
                length: 2,
            })
            .with(Expression::Compare(
                Comparison::Equal,
                port.to_be_bytes().to_vec(),
            ))
    }

    #[must_use]
    pub fn state(self, state: State) -> Self {
        self.bits(CT_STATE, state as u32, Comparison::Different)
    }

    /// The destination was not rewritten on this machine, as it is for a published container port.
    #[must_use]
    pub fn not_redirected(self) -> Self {
        self.bits(CT_STATUS, CT_STATUS_DESTINATION_NAT, Comparison::Equal)
    }

    /// A reply to the packet's source would leave by another interface.
    #[must_use]
    pub fn source_is_elsewhere(self) -> Self {
        self.with(Expression::ReverseRoute)
            .with(Expression::Compare(Comparison::Equal, vec![0]))
    }

    #[must_use]
    pub fn accept(self) -> Self {
        self.with(Expression::Verdict(ACCEPT, None))
    }

    #[must_use]
    pub fn drop_silently(self) -> Self {
        self.with(Expression::Verdict(DROP, None))
    }

    #[must_use]
    pub fn refuse(self, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Reject => self.with(Expression::Reject),
            Refusal::Drop => self.drop_silently(),
        }
    }

    #[must_use]
    pub fn jump(self, chain: &str) -> Self {
        self.with(Expression::Verdict(JUMP, Some(chain.to_owned())))
    }

    /// Rewrites the source to the address of the outgoing interface.
    #[must_use]
    pub fn masquerade(self) -> Self {
        self.with(Expression::Masquerade)
    }

    fn with(mut self, expression: Expression) -> Self {
        self.expressions.push(expression);
        self
    }

    fn interface(self, key: u32, comparison: Comparison, name: Name<'_>) -> Self {
        // The register has 16 zero-padded bytes: comparing fewer is a prefix match, and including one zero
        // makes it exact.
        let bytes = match name {
            Name::Prefix(prefix) => prefix.as_bytes().to_vec(),
            Name::Exact(name) => [name.as_bytes(), &[0]].concat(),
        };
        self.with(Expression::Meta(key))
            .with(Expression::Compare(comparison, bytes))
    }

    fn family(self, comparison: Comparison) -> Self {
        self.with(Expression::Meta(META_FAMILY))
            .with(Expression::Compare(comparison, vec![super::IPV4]))
    }

    fn address(self, offset: u32, comparison: Comparison, subnet: Subnet) -> Self {
        self.with(Expression::Payload {
            base: NETWORK_HEADER,
            offset,
            length: 4,
        })
        .with(Expression::Mask(subnet.mask().octets().to_vec()))
        .with(Expression::Compare(
            comparison,
            subnet.address().octets().to_vec(),
        ))
    }

    /// Compares the chosen bits with zero.
    fn bits(self, key: u32, mask: u32, comparison: Comparison) -> Self {
        self.with(Expression::Conntrack(key))
            .with(Expression::Mask(mask.to_ne_bytes().to_vec()))
            .with(Expression::Compare(comparison, vec![0; 4]))
    }

    pub(super) fn encode(self, message: Message) -> Message {
        self.expressions
            .into_iter()
            .fold(message, |message, expression| {
                message.nest(LIST_ELEMENT, |element| {
                    element
                        .text(EXPRESSION_NAME, expression.name())
                        .nest(EXPRESSION_DATA, |data| expression.encode(data))
                })
            })
    }
}

impl Expression {
    fn name(&self) -> &'static str {
        match self {
            Self::Meta(_) => "meta",
            Self::Conntrack(_) => "ct",
            Self::Payload { .. } => "payload",
            Self::ReverseRoute => "fib",
            Self::Mask(_) => "bitwise",
            Self::Compare(..) => "cmp",
            Self::Verdict(..) => "immediate",
            Self::Reject => "reject",
            Self::Masquerade => "masq",
        }
    }

    fn encode(&self, data: Message) -> Message {
        match self {
            Self::Meta(key) | Self::Conntrack(key) => {
                data.number_be(1, REGISTER).number_be(2, *key)
            }
            Self::Payload {
                base,
                offset,
                length,
            } => data
                .number_be(1, REGISTER)
                .number_be(2, *base)
                .number_be(3, *offset)
                .number_be(4, *length),
            Self::ReverseRoute => data
                .number_be(1, REGISTER)
                .number_be(2, FIB_RESULT_INTERFACE)
                .number_be(3, FIB_SOURCE | FIB_IN_INTERFACE | FIB_PRESENT),
            Self::Mask(mask) => {
                let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
                let zeros = vec![0; mask.len()];
                data.number_be(1, REGISTER)
                    .number_be(2, REGISTER)
                    .number_be(3, length)
                    .nest(4, |value| value.bytes(DATA_VALUE, mask))
                    .nest(5, |value| value.bytes(DATA_VALUE, &zeros))
            }
            Self::Compare(comparison, value) => data
                .number_be(1, REGISTER)
                .number_be(2, *comparison as u32)
                .nest(3, |nest| nest.bytes(DATA_VALUE, value)),
            Self::Verdict(code, chain) => data.number_be(1, VERDICT_REGISTER).nest(2, |nest| {
                nest.nest(DATA_VERDICT, |verdict| {
                    let verdict = verdict.number_be(1, *code);
                    match chain {
                        Some(chain) => verdict.text(2, chain),
                        None => verdict,
                    }
                })
            }),
            Self::Reject => data
                .number_be(1, REJECT_ANY_FAMILY)
                .bytes(2, &[REJECT_ADMIN_PROHIBITED]),
            Self::Masquerade => data,
        }
    }
}
