//! Limits on connections: in total and per peer, separately for trusted and untrusted peers.

use super::LoadConfig;
use super::shares::{Share, Shares};
use crate::auth::{Peer, PeerIdentity};
use crate::config::HttpConfig;

/// Counts one connection until it is closed, also after an upgrade to WebSocket.
pub(crate) type ConnectionPermit = Share<PeerIdentity>;

pub(crate) struct ConnectionLimits {
    trusted: ConnectionLimit,
    /// Separate, so that untrusted peers cannot use up the connections of trusted ones.
    untrusted: ConnectionLimit,
}

struct ConnectionLimit {
    max: usize,
    max_per_peer: usize,
    open: Shares<PeerIdentity>,
}

impl ConnectionLimits {
    /// At most half of the descriptors are used for connections; the rest are for boxes.
    pub(crate) fn new(http: &HttpConfig, load: &LoadConfig, descriptors: usize) -> Self {
        let available = (descriptors / 2).max(1);
        // Untrusted peers get what trusted ones leave, and at least an eighth.
        let spare = available.saturating_sub(http.max_connections);
        let untrusted = http.max_untrusted_connections.min(spare.max(available / 8));
        let max = http.max_connections.min(available - untrusted);
        for (setting, configured, max) in [
            ("max_connections", http.max_connections, max),
            (
                "max_untrusted_connections",
                http.max_untrusted_connections,
                untrusted,
            ),
        ] {
            if max < configured {
                tracing::warn!(
                    max,
                    configured,
                    "http.{setting} is lowered: the limit of open files (RLIMIT_NOFILE) is too low"
                );
            }
        }
        let limit = |max, max_per_peer| ConnectionLimit {
            max,
            max_per_peer,
            open: Shares::default(),
        };
        // Often a single user has all connections; an eighth is reserved for others.
        let per_trusted = load.connections_per_peer.unwrap_or(max - max / 8);
        let per_untrusted = load.untrusted_connections_per_peer;
        Self {
            trusted: limit(max, per_trusted),
            untrusted: limit(untrusted, per_untrusted.unwrap_or(untrusted.div_ceil(2))),
        }
    }

    /// `None` if a limit is reached.
    pub(crate) fn try_acquire(&self, peer: &Peer) -> Option<ConnectionPermit> {
        let limit = if peer.trusted {
            &self.trusted
        } else {
            &self.untrusted
        };
        let has_room = |own, total| total < limit.max && own < limit.max_per_peer;
        limit.open.take(peer.identity, 1, has_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Transport;

    fn peer(trusted: bool, uid: u32) -> Peer {
        Peer {
            transport: Transport::Unix,
            identity: PeerIdentity::Uid(uid),
            trusted,
            operator: false,
            langbot: false,
        }
    }

    fn limits(descriptors: usize) -> ConnectionLimits {
        let http = HttpConfig {
            max_connections: 4,
            max_untrusted_connections: 1,
            ..HttpConfig::default()
        };
        let load = LoadConfig {
            connections_per_peer: Some(3),
            ..LoadConfig::default()
        };
        ConnectionLimits::new(&http, &load, descriptors)
    }

    #[test]
    fn one_peer_cannot_use_all_connections() {
        let limits = limits(1024);
        let mut counts: Vec<_> = (0..3).map(|_| limits.try_acquire(&peer(true, 1))).collect();
        assert!(counts.iter().all(Option::is_some));
        assert!(limits.try_acquire(&peer(true, 1)).is_none());
        counts.push(limits.try_acquire(&peer(true, 2)));
        assert!(counts[3].is_some());
        assert!(
            limits.try_acquire(&peer(true, 3)).is_none(),
            "the total is four"
        );
        counts.push(limits.try_acquire(&peer(false, 1)));
        assert!(counts[4].is_some(), "untrusted peers have their own limit");
        assert!(limits.try_acquire(&peer(false, 2)).is_none());
        counts.clear();
        assert!(limits.trusted.open.lock().is_empty());
        assert!(limits.untrusted.open.lock().is_empty());
    }

    #[test]
    fn both_limits_together_leave_half_of_the_descriptors_to_boxes() {
        let (http, load) = (HttpConfig::default(), LoadConfig::default());
        let limits = ConnectionLimits::new(&http, &load, 1024);
        assert_eq!((limits.trusted.max, limits.untrusted.max), (448, 64));
        let http = HttpConfig {
            max_connections: 100,
            max_untrusted_connections: 1000,
            ..http
        };
        let limits = ConnectionLimits::new(&http, &load, 1024);
        assert_eq!((limits.trusted.max, limits.untrusted.max), (100, 412));
    }

    #[test]
    fn the_descriptor_limit_lowers_the_connection_limit() {
        let limits = limits(4);
        let counts = [
            limits.try_acquire(&peer(true, 1)),
            limits.try_acquire(&peer(true, 2)),
        ];
        assert!(counts.iter().all(Option::is_some));
        assert!(limits.try_acquire(&peer(true, 3)).is_none());
    }
}
