//! How many connections there may be: in all, from strangers, and from one peer.
//!
//! A connection counts for as long as its socket is open, also after it became a WebSocket.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::LoadConfig;
use crate::auth::{Peer, Who};
use crate::config::HttpConfig;

#[derive(Clone)]
pub(crate) struct Doors {
    trusted: Arc<Door>,
    /// Apart from the others, so that strangers cannot use up the daemon's connections.
    untrusted: Arc<Door>,
}

struct Door {
    most: usize,
    most_per_peer: usize,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    all: usize,
    by_peer: HashMap<Who, usize>,
}

impl Doors {
    /// No more connections than half of the descriptors: the rest are for boxes.
    pub(crate) fn new(http: &HttpConfig, load: &LoadConfig, descriptors: usize) -> Self {
        let room = (descriptors / 2).max(1);
        let most = http.max_connections.min(room);
        if most < http.max_connections {
            tracing::warn!(
                most,
                wanted = http.max_connections,
                "fewer connections than configured: the limit of open files is low"
            );
        }
        let untrusted = http.max_untrusted_connections.min(room);
        Self {
            // One user who is trusted may be all there are; a few places stay for another.
            trusted: Arc::new(Door::new(
                most,
                load.connections_per_peer.unwrap_or(most - most / 8),
            )),
            untrusted: Arc::new(Door::new(
                untrusted,
                load.untrusted_connections_per_peer
                    .unwrap_or_else(|| untrusted.div_ceil(2)),
            )),
        }
    }

    /// `None` when there is no room for this peer.
    pub(crate) fn enter(&self, peer: &Peer) -> Option<Entered> {
        let door = if peer.trusted {
            &self.trusted
        } else {
            &self.untrusted
        };
        let mut inside = door.lock();
        let mine = inside.by_peer.get(&peer.who).copied().unwrap_or_default();
        if inside.all >= door.most || mine >= door.most_per_peer {
            return None;
        }
        inside.all += 1;
        inside.by_peer.insert(peer.who, mine + 1);
        Some(Entered {
            door: Arc::clone(door),
            who: peer.who,
        })
    }
}

impl Door {
    fn new(most: usize, most_per_peer: usize) -> Self {
        Self {
            most,
            most_per_peer,
            inside: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection counted; no longer when dropped.
pub(crate) struct Entered {
    door: Arc<Door>,
    who: Who,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut inside = self.door.lock();
        inside.all -= 1;
        if let Some(mine) = inside.by_peer.get_mut(&self.who) {
            *mine -= 1;
            if *mine == 0 {
                inside.by_peer.remove(&self.who);
            }
        }
    }
}

/// A socket that counts until it is closed, whatever is spoken over it meanwhile.
pub(crate) struct Seated<S> {
    socket: S,
    _entered: Entered,
}

impl<S> Seated<S> {
    pub(crate) fn new(socket: S, entered: Entered) -> Self {
        Self {
            socket,
            _entered: entered,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Seated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Seated<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
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

    fn doors(descriptors: usize) -> Doors {
        let http = HttpConfig {
            max_connections: 4,
            max_untrusted_connections: 1,
            ..HttpConfig::default()
        };
        let load = LoadConfig {
            connections_per_peer: Some(3),
            ..LoadConfig::default()
        };
        Doors::new(&http, &load, descriptors)
    }

    #[test]
    fn one_peer_leaves_room_for_others() {
        let doors = doors(1024);
        let mut inside: Vec<_> = (0..3).map(|_| doors.enter(&peer(true, 1))).collect();
        assert!(inside.iter().all(Option::is_some));
        assert!(doors.enter(&peer(true, 1)).is_none());
        inside.push(doors.enter(&peer(true, 2)));
        assert!(inside[3].is_some());
        assert!(doors.enter(&peer(true, 3)).is_none(), "four are all");
        inside.push(doors.enter(&peer(false, 1)));
        assert!(inside[4].is_some(), "strangers have a door of their own");
        assert!(doors.enter(&peer(false, 2)).is_none());
        inside.clear();
        assert!(doors.trusted.lock().by_peer.is_empty());
        assert_eq!(doors.trusted.lock().all + doors.untrusted.lock().all, 0);
    }

    #[test]
    fn few_descriptors_are_few_connections() {
        let doors = doors(4);
        let inside = [doors.enter(&peer(true, 1)), doors.enter(&peer(true, 2))];
        assert!(inside.iter().all(Option::is_some));
        assert!(doors.enter(&peer(true, 3)).is_none());
    }
}
