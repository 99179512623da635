//! Determines the trust of a peer when its connection is accepted.

use std::net::{IpAddr, SocketAddr};

use boxwood_sys::sock_diag::tcp_peer_uid;

use crate::config::PeerNetwork;

/// Properties of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) transport: Transport,
    /// The key for counting connections per peer.
    pub(crate) identity: PeerIdentity,
    /// Needs no token.
    pub(crate) trusted: bool,
    /// Root or the daemon's user, which have access to the daemon's files and memory anyway.
    pub(crate) operator: bool,
    /// Needs no token on LangBot's routes.
    pub(crate) langbot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// With the local address, which a `Host` header may name.
    Tcp {
        local: IpAddr,
    },
    Unix,
}

/// A local user or a remote host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerIdentity {
    Uid(u32),
    Address(IpAddr),
    Unknown,
}

impl PeerIdentity {
    /// A host usually has a whole IPv6 /64, which counts as one peer.
    fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = u128::from(v6) & !u128::from(u64::MAX);
                IpAddr::V6(network.into())
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The uids that need no token.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    operators: Vec<u32>,
    uids: Vec<u32>,
    /// Need no token on LangBot's routes.
    pub(crate) langbot_peers: Vec<PeerNetwork>,
}

impl Trust {
    /// Root, the daemon's uid and the configured ones.
    ///
    /// The overflow uid is excluded unless configured: in a user namespace it stands for every
    /// unmapped uid.
    pub(crate) fn new(own_uid: u32, listed: &[u32]) -> Self {
        let mut operators = vec![0];
        if own_uid != OVERFLOW_UID {
            operators.push(own_uid);
        }
        Self {
            uids: operators.iter().chain(listed).copied().collect(),
            operators,
            langbot_peers: Vec::new(),
        }
    }

    pub(crate) fn classify_tcp(&self, peer: SocketAddr, local: SocketAddr) -> Peer {
        let local_ip = local.ip().to_canonical();
        let loopback = peer.ip().to_canonical().is_loopback() && local_ip.is_loopback();
        let owner = if loopback {
            tcp_peer_uid(peer, local).unwrap_or_else(|error| {
                tracing::warn!(%peer, %error, "failed to determine the user of a local connection; it needs a token");
                None
            })
        } else {
            None
        };
        let langbot = |network: &PeerNetwork| network.contains(peer.ip());
        Peer {
            langbot: self.langbot_peers.iter().any(langbot),
            ..self.peer(
                Transport::Tcp { local: local_ip },
                owner,
                PeerIdentity::at(peer.ip()),
            )
        }
    }

    pub(crate) fn classify_unix(&self, uid: Option<u32>) -> Peer {
        self.peer(Transport::Unix, uid, PeerIdentity::Unknown)
    }

    fn peer(&self, transport: Transport, uid: Option<u32>, without_uid: PeerIdentity) -> Peer {
        Peer {
            transport,
            identity: uid.map_or(without_uid, PeerIdentity::Uid),
            trusted: uid.is_some_and(|uid| self.uids.contains(&uid)),
            operator: uid.is_some_and(|uid| self.operators.contains(&uid)),
            langbot: false,
        }
    }
}

/// The default of `/proc/sys/kernel/overflowuid`.
const OVERFLOW_UID: u32 = 65534;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn is_trusted(trust: &Trust, bind: &str) -> bool {
        let listener = TcpListener::bind(bind).expect("bind");
        let address = listener.local_addr().expect("address");
        let client = TcpStream::connect(address).expect("connect");
        let (server, peer) = listener.accept().expect("accept");
        let peer = trust.classify_tcp(peer, server.local_addr().expect("address"));
        drop(client);
        peer.trusted
    }

    #[test]
    fn only_listed_uids_are_trusted_on_loopback() {
        let own_uid = rustix::process::geteuid().as_raw();
        assert!(is_trusted(&Trust::new(own_uid, &[]), "127.0.0.1:0"));
        assert!(is_trusted(&Trust::new(own_uid, &[]), "[::1]:0"));
        let trusting = |uids: &[u32]| Trust {
            operators: Vec::new(),
            uids: uids.to_vec(),
            langbot_peers: Vec::new(),
        };
        assert!(!is_trusted(&trusting(&[4242]), "127.0.0.1:0"));
        assert!(is_trusted(&trusting(&[4242, own_uid]), "127.0.0.1:0"));
    }

    #[test]
    fn remote_peers_are_never_trusted() {
        let trust = Trust::new(0, &[]);
        let check = |peer: &str, local: &str| {
            let peer = trust.classify_tcp(
                peer.parse().expect("address"),
                local.parse().expect("address"),
            );
            assert!(!peer.trusted);
        };
        check("192.0.2.1:9", "192.0.2.2:5410");
        check("127.0.0.1:9", "192.0.2.2:5410");
        check("[2001:db8::1]:9", "[::1]:5410");
    }

    #[test]
    fn unix_peers_are_classified_by_their_credentials() {
        let trust = Trust::new(1000, &[1001]);
        for (uid, trusted, operator) in [
            (Some(0), true, true),
            (Some(1000), true, true),
            (Some(1001), true, false),
            (Some(1002), false, false),
            (None, false, false),
        ] {
            let peer = trust.classify_unix(uid);
            assert_eq!(
                (peer.trusted, peer.operator),
                (trusted, operator),
                "{uid:?}"
            );
        }
    }

    #[test]
    fn connections_are_counted_per_local_user_or_remote_host() {
        let trust = Trust::new(0, &[]);
        let of = |peer: &str| {
            let local = "[2001:db8::9]:5410".parse().expect("address");
            trust
                .classify_tcp(peer.parse().expect("address"), local)
                .identity
        };
        assert_eq!(of("[2001:db8::1:1]:9"), of("[2001:db8::2:2]:10"));
        assert_ne!(of("[2001:db8::1]:9"), of("[2001:db8:0:1::1]:9"));
        assert_eq!(of("192.0.2.1:9"), of("[::ffff:192.0.2.1]:10"));
        assert_ne!(of("192.0.2.1:9"), of("192.0.2.2:9"));
        assert_eq!(trust.classify_unix(Some(7)).identity, PeerIdentity::Uid(7));
    }

    #[test]
    fn the_overflow_uid_is_trusted_only_if_it_is_configured() {
        assert!(
            !Trust::new(OVERFLOW_UID, &[])
                .classify_unix(Some(OVERFLOW_UID))
                .trusted
        );
        assert!(
            Trust::new(1, &[OVERFLOW_UID])
                .classify_unix(Some(OVERFLOW_UID))
                .trusted
        );
    }
}
