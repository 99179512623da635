//! The takeover messages: one JSON object per packet, with the sockets as ancillary data.
//!
//! Unknown fields are ignored. Incompatible changes increase the protocol version.

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

/// Sockets of the service manager and the daemon's own.
const MAX_SOCKETS: usize = 96;
const MAX_BYTES: usize = 16 * 1024;

/// First message of the successor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) version: u32,
}

/// The running daemon's response. With `refused` there are no sockets.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) version: u32,
    pub(super) pid: u32,
    /// Drain time for running requests.
    pub(super) drain_sec: u64,
    /// One per passed descriptor.
    #[serde(default)]
    pub(super) sockets: Vec<PassedSocket>,
    #[serde(default)]
    pub(super) refused: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassedSocket {
    /// Created by the service manager.
    pub(super) activated: bool,
}

/// Second message of the successor: it has received the sockets.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Confirm {
    pub(super) go: bool,
}

/// The socket address, through `/proc/self/fd` so that a long state directory fits.
pub(super) struct SocketPath {
    _directory: OwnedFd,
    pub(super) address: SocketAddrUnix,
}

impl SocketPath {
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

/// `SEQPACKET` preserves message boundaries.
pub(super) fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Root and the daemon's user can stop the daemon anyway.
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
        return Err(io::Error::other("too many sockets to hand over"));
    }
    let parts = [IoSlice::new(&body)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Fails with [`io::ErrorKind::UnexpectedEof`] if the peer has closed the connection.
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
        return Err(io::Error::other("the message was truncated"));
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
    fn unknown_fields_are_ignored_and_missing_ones_are_errors() {
        let response = r#"{"version":1,"pid":7,"drain_sec":3,"sockets":[{"activated":true,"new":1}],"more":{}}"#;
        let response: Response = serde_json::from_str(response).expect("understood");
        assert!(response.sockets[0].activated && response.refused.is_none());
        assert!(serde_json::from_str::<Response>(r#"{"version":1}"#).is_err());
    }

    #[test]
    fn only_root_and_the_own_user_are_trusted() {
        let own = rustix::process::geteuid().as_raw();
        assert!(is_trusted(0) && is_trusted(own));
        assert!(!is_trusted(own.wrapping_add(4711).max(1)));
    }
}
