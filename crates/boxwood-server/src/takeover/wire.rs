//! What the two daemons say to each other: one JSON object per packet, sockets beside it.
//!
//! Fields that are not known are passed over: whatever changes the meaning changes the version.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg, socket_with,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::SOCKET;

/// As many as a service manager may give, and ours.
const MAX_SOCKETS: usize = 96;
const MAX_BYTES: usize = 16 * 1024;

/// The successor's first word.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) version: u32,
}

/// The answer. With `refused` there are no sockets, and nothing happens.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) version: u32,
    pub(super) pid: u32,
    /// How long its running requests may take to end.
    pub(super) drain_sec: u64,
    /// One for each descriptor that comes along.
    #[serde(default)]
    pub(super) sockets: Vec<Passed>,
    #[serde(default)]
    pub(super) refused: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Passed {
    /// Made by a service manager.
    pub(super) activated: bool,
}

/// The successor's last word: it has the sockets.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Go {
    pub(super) go: bool,
}

/// An address that no depth of the state directory makes too long.
pub(super) struct Place {
    _directory: OwnedFd,
    pub(super) address: SocketAddrUnix,
}

impl Place {
    pub(super) fn new(state_dir: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(state_dir, flags, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        let address = SocketAddrUnix::new(path)?;
        Ok(Self {
            _directory: directory,
            address,
        })
    }
}

/// Packets keep their borders, so that a message is whole or not there.
pub(super) fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Whoever may start and stop this daemon anyway.
pub(super) fn is_trusted(peer_uid: u32) -> bool {
    peer_uid == 0 || peer_uid == rustix::process::geteuid().as_raw()
}

pub(super) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("there are too many sockets to hand over"));
    }
    let parts = [IoSlice::new(&body)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// [`io::ErrorKind::UnexpectedEof`] once the other side is gone.
pub(super) fn receive<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<(M, Vec<OwnedFd>)> {
    let mut buffer = vec![0_u8; MAX_BYTES];
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    if received.flags.intersects(cut) {
        return Err(io::Error::other("a message was cut short"));
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = serde_json::from_slice(&buffer[..received.bytes])?;
    Ok((message, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_passed_over_and_what_is_missing_is_not() {
        let answer = r#"{"version":1,"pid":7,"drain_sec":3,"sockets":[{"activated":true,"new":1}],"more":{}}"#;
        let answer: Answer = serde_json::from_str(answer).expect("understood");
        assert!(answer.sockets[0].activated && answer.refused.is_none());
        assert!(serde_json::from_str::<Answer>(r#"{"version":1}"#).is_err());
    }

    #[test]
    fn strangers_are_strangers() {
        let own = rustix::process::geteuid().as_raw();
        assert!(is_trusted(0) && is_trusted(own));
        assert!(!is_trusted(own.wrapping_add(4711).max(1)));
    }
}
