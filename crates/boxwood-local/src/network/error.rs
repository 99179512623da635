//! Errors of the outbound network.

use std::io;

use boxwood_sys::netlink::{NetlinkError, Subnet};

#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("the network namespace `{path}` could not be opened")]
    Namespace { path: String, source: io::Error },
    #[error("the host's links and routes could not be read")]
    HostNetwork { source: NetlinkError },
    #[error("no name server of the host can be used from a box: {why}")]
    NoResolver { why: String },
    #[error("no address is free for another box in `{pool}`")]
    PoolExhausted { pool: Subnet },
    #[error("every address range that boxes may use is in use on this host")]
    NoPool,
    #[error("the address of a running box is used by another box or not in the pool `{pool}`")]
    NotClaimed { pool: String },
    #[error("the packet filter for boxes could not be installed")]
    PacketFilter { source: NetlinkError },
    #[error("the packet filter for boxes could not be removed")]
    PacketFilterRemoval { source: NetlinkError },
    #[error(
        "chain `{chain}` of table `{table}` drops forwarded packets and could not be changed to accept packets of boxes"
    )]
    ForeignChain {
        table: String,
        chain: String,
        source: NetlinkError,
    },
    #[error("the link `{name}` of a box could not be changed")]
    Link { name: String, source: NetlinkError },
    #[error("the kernel setting `{path}` could not be changed")]
    Setting { path: String, source: io::Error },
    #[error("`{path}` cannot be opened, and `pasta` needs it")]
    Tun {
        path: &'static str,
        source: io::Error,
    },
    #[error("`pasta` is not installed, and networks need it if the daemon does not run as root")]
    PastaMissing,
    #[error("`pasta` could not be started: {step}")]
    PastaStart {
        step: &'static str,
        source: io::Error,
    },
    #[error("the `pasta` of a running box has exited")]
    PastaGone,
    #[error("`pasta` did not start: {last_output}")]
    PastaEnded { last_output: String },
}

impl NetError {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoResolver { .. } => {
                Some("set name servers that a box can reach: `network.dns = [\"192.0.2.53\"]`")
            }
            Self::PoolExhausted { .. } | Self::NoPool => Some(
                "set `network.pool` in the configuration to a private range that this host does not use",
            ),
            Self::PastaMissing => Some("install the package `passt` (`apt-get install passt`)"),
            Self::Tun { .. } => {
                Some("let the daemon's user open it: `chmod 0666 /dev/net/tun`, as root")
            }
            Self::PacketFilter { .. } => {
                Some("the kernel needs nf_tables with `ct`, `fib` and `masquerade`")
            }
            _ => None,
        }
    }
}
