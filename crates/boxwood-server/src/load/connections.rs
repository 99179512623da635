//! Limits on connections: in total and per peer, separately for trusted and untrusted peers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::LoadConfig;
use crate::auth::{Peer, Who};
use crate::config::HttpConfig;

#[derive(Clone)]
pub(crate) struct ConnectionLimits {
    trusted: Arc<ConnectionLimit>,
    /// Separate, so that untrusted peers cannot use up the connections of trusted ones.
    untrusted: Arc<ConnectionLimit>,
}

struct ConnectionLimit {
    max: usize,
    max_per_peer: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_peer: HashMap<Who, usize>,
}

impl ConnectionLimits {
    /// At most half of the descriptors are used for connections; the rest are for boxes.
    pub(crate) fn new(http: &HttpConfig, load: &LoadConfig, descriptors: usize) -> Self {
        let room = (descriptors / 2).max(1);
        let max = http.max_connections.min(room);
        if max < http.max_connections {
            tracing::warn!(
                max,
                wanted = http.max_connections,
                "http.max_connections is lowered: the limit of open files (RLIMIT_NOFILE) is too low"
            );
        }
        let untrusted = http.max_untrusted_connections.min(room);
        Self {
            // Often a single user has all connections; an eighth is reserved for others.
            trusted: Arc::new(ConnectionLimit::new(
                max,
                load.connections_per_peer.unwrap_or(max - max / 8),
            )),
            untrusted: Arc::new(ConnectionLimit::new(
                untrusted,
                load.untrusted_connections_per_peer
                    .unwrap_or_else(|| untrusted.div_ceil(2)),
            )),
        }
    }

    /// `None` if a limit is reached.
    pub(crate) fn try_acquire(&self, peer: &Peer) -> Option<ConnectionPermit> {
        let limit = if peer.trusted {
            &self.trusted
        } else {
            &self.untrusted
        };
        let mut counts = limit.lock();
        let own = counts.by_peer.get(&peer.who).copied().unwrap_or_default();
        if counts.total >= limit.max || own >= limit.max_per_peer {
            return None;
        }
        counts.total += 1;
        counts.by_peer.insert(peer.who, own + 1);
        Some(ConnectionPermit {
            limit: Arc::clone(limit),
            who: peer.who,
        })
    }
}

impl ConnectionLimit {
    fn new(max: usize, max_per_peer: usize) -> Self {
        Self {
            max,
            max_per_peer,
            counts: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one connection until it is closed, also after an upgrade to WebSocket.
pub(crate) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    who: Who,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.limit.lock();
        counts.total -= 1;
        if let Some(own) = counts.by_peer.get_mut(&self.who) {
            *own -= 1;
            if *own == 0 {
                counts.by_peer.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Transport;

    fn peer(trusted: bool, uid: u32) -> Peer {
        Peer {
            transport: Transport::Unix,
            who: Who::Uid(uid),
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
        assert!(limits.trusted.lock().by_peer.is_empty());
        assert_eq!(
            limits.trusted.lock().total + limits.untrusted.lock().total,
            0
        );
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
