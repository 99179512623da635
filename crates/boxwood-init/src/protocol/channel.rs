//! A Unix `SOCK_SEQPACKET` connection that carries messages and descriptors. Callers poll it.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use boxwood_sys::memory::{read_whole, sealed_file};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum number of descriptors in one message (64 mounts, 64 skills, the workspace, the root, and
/// spare). The kernel allows 253.
pub const MAX_FDS: usize = 144;

/// Larger bodies are sent in a memfd: a packet must fit into the socket's send buffer.
const INLINE_LIMIT: usize = 48 * 1024;

/// The tag and a body.
const MAX_PACKET_BYTES: usize = 1 + INLINE_LIMIT;

/// Larger bodies are rejected.
const BODY_LIMIT: u64 = 64 * 1024 * 1024;

/// First byte of a packet: where its body is.
const INLINE: u8 = 0;
const IN_MEMFD: u8 = 1;

thread_local! {
    /// Reused receive buffer: the size of a packet is unknown before it is received.
    static PACKET: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the peer closed the channel")]
    Closed,
    #[error("the socket is not ready")]
    WouldBlock,
    #[error("failed to {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("invalid message: {0}")]
    Invalid(&'static str),
}

impl ChannelError {
    fn io(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::WOULDBLOCK => Self::WouldBlock,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            errno => Self::Io {
                what,
                source: errno.into(),
            },
        }
    }
}

#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.socket
    }
}

impl Channel {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self { socket: a }, Self { socket: b }))
    }

    /// Sends one message. On a non-blocking socket `WouldBlock` means nothing was sent.
    pub fn send<M: Serialize>(
        &self,
        message: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        let body = postcard::to_stdvec(message)
            .map_err(|_| ChannelError::Invalid("it cannot be encoded"))?;
        if body.len() <= INLINE_LIMIT {
            return self.send_packet(INLINE, &body, fds);
        }
        let memfd = sealed_file("message", MemfdFlags::empty(), &body)
            .map_err(ChannelError::io("write the message to a memfd"))?;
        let mut all = Vec::with_capacity(fds.len() + 1);
        all.push(memfd.as_fd());
        all.extend_from_slice(fds);
        self.send_packet(IN_MEMFD, &[], &all)
    }

    fn send_packet(
        &self,
        tag: u8,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        if fds.len() > MAX_FDS {
            return Err(ChannelError::Invalid("it has too many descriptors"));
        }
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(ChannelError::Invalid("it has too many descriptors"));
        }
        let parts = [IoSlice::new(std::slice::from_ref(&tag)), IoSlice::new(body)];
        sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(ChannelError::io("send a message"))
    }

    /// Receives one message with its descriptors, each close-on-exec.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<(M, Vec<OwnedFd>), ChannelError> {
        PACKET.with_borrow_mut(|packet| self.receive_in(packet))
    }

    fn receive_in<M: DeserializeOwned>(
        &self,
        packet: &mut Vec<u8>,
    ) -> Result<(M, Vec<OwnedFd>), ChannelError> {
        if packet.is_empty() {
            // Fresh pages take no memory until they are written.
            *packet = vec![0; MAX_PACKET_BYTES];
        }
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let outcome = recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(packet)],
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            );
            // Reported once if the peer closed with unread data. Its earlier packets can still be received.
            if !matches!(outcome, Err(Errno::CONNRESET)) {
                break outcome.map_err(ChannelError::io("receive a message"))?;
            }
        };
        let mut fds: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        let truncated = rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC;
        if received.flags.intersects(truncated) {
            return Err(ChannelError::Invalid("it is truncated"));
        }
        match packet[..received.bytes].split_first() {
            // Packets are never empty, so zero bytes mean end of file.
            None => Err(ChannelError::Closed),
            Some((&INLINE, body)) => Ok((decode(body)?, fds)),
            Some((&IN_MEMFD, _)) if !fds.is_empty() => {
                let memfd = fds.remove(0);
                let body = read_whole(&memfd, BODY_LIMIT).map_err(|source| ChannelError::Io {
                    what: "read a message from its memfd",
                    source,
                })?;
                Ok((decode(&body)?, fds))
            }
            Some(_) => Err(ChannelError::Invalid("unknown packet type")),
        }
    }
}

fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<M, ChannelError> {
    postcard::from_bytes(body).map_err(|_| ChannelError::Invalid("it cannot be decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_sizes_arrive_with_their_descriptors() {
        let (a, b) = Channel::pair().expect("pair");
        let file = std::fs::File::open("/dev/null").expect("null");
        for size in [0, 1, INLINE_LIMIT, INLINE_LIMIT + 1, 3_000_000] {
            let text = "x".repeat(size);
            a.send(&text, &[file.as_fd(), file.as_fd()]).expect("send");
            let (received, fds) = b.receive::<String>().expect("receive");
            assert_eq!(received, text);
            assert_eq!(fds.len(), 2);
        }
    }

    #[test]
    fn packets_sent_before_a_reset_are_still_received() {
        let (a, b) = Channel::pair().expect("pair");
        a.send(&"last message", &[]).expect("send");
        b.send(&"never read", &[]).expect("send");
        drop(a);
        let (received, _) = b.receive::<String>().expect("receive");
        assert_eq!(received, "last message");
        assert!(matches!(b.receive::<String>(), Err(ChannelError::Closed)));
    }

    #[test]
    fn an_invalid_packet_differs_from_a_closed_channel() {
        let (a, b) = Channel::pair().expect("pair");
        a.send_packet(9, b"?", &[]).expect("send");
        assert!(matches!(
            b.receive::<String>(),
            Err(ChannelError::Invalid(_))
        ));
        drop(a);
        assert!(matches!(b.receive::<String>(), Err(ChannelError::Closed)));
    }
}
