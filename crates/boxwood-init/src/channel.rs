//! One Unix `SOCK_SEQPACKET` connection that carries messages and descriptors.
//!
//! Comes in: messages. Goes out: the same on the other side. Never here: waiting; callers poll.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most descriptors that one message may carry (64 mounts, 64 skills, the workspace, the root, and
/// spare). The kernel takes 253.
pub const MAX_FDS: usize = 144;

/// Larger bodies travel in a memfd: a packet has to fit the socket's send buffer.
const INLINE_LIMIT: usize = 48 * 1024;

/// The tag and a body.
const LARGEST_PACKET: usize = 1 + INLINE_LIMIT;

/// A body no honest side sends; a bound for what we read.
const BODY_LIMIT: u64 = 64 * 1024 * 1024;

/// First byte of a packet: where the body is.
const INLINE: u8 = 0;
const IN_MEMFD: u8 = 1;

thread_local! {
    /// Where packets are received. Kept, because the size of a packet is not known before.
    static PACKET: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the other side is gone")]
    Closed,
    #[error("the socket is not ready")]
    WouldBlock,
    #[error("a message could not be {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("a message could not be understood: {0}")]
    Garbled(&'static str),
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
            .map_err(|_| ChannelError::Garbled("it could not be encoded"))?;
        if body.len() <= INLINE_LIMIT {
            return self.send_packet(INLINE, &body, fds);
        }
        let memfd = memfd_create("message", MemfdFlags::CLOEXEC)
            .map_err(ChannelError::io("put into memory"))?;
        let mut rest = &body[..];
        while !rest.is_empty() {
            let n = rustix::io::write(&memfd, rest).map_err(ChannelError::io("put into memory"))?;
            rest = &rest[n..];
        }
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
            return Err(ChannelError::Garbled("it has too many descriptors"));
        }
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(ChannelError::Garbled("it has too many descriptors"));
        }
        let parts = [IoSlice::new(std::slice::from_ref(&tag)), IoSlice::new(body)];
        sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(ChannelError::io("sent"))
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
            // Mostly fresh pages, which take no memory before they are written to.
            *packet = vec![0; LARGEST_PACKET];
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
            // Reported once, if the other side closed with unread data. Its earlier packets can
            // still be received.
            if !matches!(outcome, Err(Errno::CONNRESET)) {
                break outcome.map_err(ChannelError::io("received"))?;
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
            return Err(ChannelError::Garbled("it was cut short"));
        }
        match packet[..received.bytes].split_first() {
            // A packet is never empty, so nothing means the end.
            None => Err(ChannelError::Closed),
            Some((&INLINE, body)) => Ok((decode(body)?, fds)),
            Some((&IN_MEMFD, _)) if !fds.is_empty() => {
                let memfd = fds.remove(0);
                Ok((decode(&read_all(&memfd)?)?, fds))
            }
            Some(_) => Err(ChannelError::Garbled("its first byte is unknown")),
        }
    }
}

fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<M, ChannelError> {
    postcard::from_bytes(body).map_err(|_| ChannelError::Garbled("it could not be decoded"))
}

/// Reads by position from the start: the sender's file offset is shared and stands at the end.
fn read_all(memfd: &OwnedFd) -> Result<Vec<u8>, ChannelError> {
    let stat = rustix::fs::fstat(memfd).map_err(ChannelError::io("read from memory"))?;
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > BODY_LIMIT {
        return Err(ChannelError::Garbled("it is too large"));
    }
    let mut body = vec![0_u8; usize::try_from(size).unwrap_or(0)];
    let mut at = 0;
    while at < body.len() {
        match rustix::io::pread(memfd, &mut body[at..], at as u64) {
            Ok(0) => return Err(ChannelError::Garbled("it was cut short")),
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(ChannelError::io("read from memory")(errno)),
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_every_size_arrive_with_their_descriptors() {
        let (a, b) = Channel::pair().expect("pair");
        let file = std::fs::File::open("/dev/null").expect("null");
        for size in [0, 1, INLINE_LIMIT, INLINE_LIMIT + 1, 3_000_000] {
            let text = "x".repeat(size);
            a.send(&text, &[file.as_fd(), file.as_fd()]).expect("send");
            let (got, fds) = b.receive::<String>().expect("receive");
            assert_eq!(got, text);
            assert_eq!(fds.len(), 2);
        }
    }

    #[test]
    fn the_last_words_are_heard_of_one_that_left_without_listening() {
        let (a, b) = Channel::pair().expect("pair");
        a.send(&"last words", &[]).expect("send");
        b.send(&"never read", &[]).expect("send");
        drop(a);
        let (got, _) = b.receive::<String>().expect("receive");
        assert_eq!(got, "last words");
        assert!(matches!(b.receive::<String>(), Err(ChannelError::Closed)));
    }

    #[test]
    fn the_end_is_told_apart_from_garbage() {
        let (a, b) = Channel::pair().expect("pair");
        a.send_packet(9, b"?", &[]).expect("send");
        assert!(matches!(
            b.receive::<String>(),
            Err(ChannelError::Garbled(_))
        ));
        drop(a);
        assert!(matches!(b.receive::<String>(), Err(ChannelError::Closed)));
    }
}
