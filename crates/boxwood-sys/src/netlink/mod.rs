//! Netlink sockets, requests and replies.
//!
//! Messages are built by [`route`](self) and by `crate::nftables`. A request returns an acknowledgement,
//! the messages of a dump, or a [`NetlinkError`]. Every request uses its own socket, so that a late reply
//! to a failed request is not mistaken for the reply to the next one.

mod message;
mod route;
mod subnet;

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

pub use message::{Attribute, Attributes, Message};
pub use route::{
    Link, Route, VethPair, add_address, add_default_route, configure_interface, create_veth,
    delete_link, link_by_index, link_by_name, links_with_prefix, loopback_up, routes, set_up,
    without_ipv6_address,
};
pub use subnet::{Subnet, SubnetError};

/// Replies are immediate; this only keeps a kernel bug from blocking the start of a box.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER: usize = 16;

/// The operation that the kernel refused, with its explanation if there is one.
#[derive(Debug)]
pub struct NetlinkError {
    operation: &'static str,
    errno: Errno,
    explanation: Option<String>,
}

impl NetlinkError {
    pub(crate) fn new(operation: &'static str, errno: Errno) -> Self {
        Self {
            operation,
            errno,
            explanation: None,
        }
    }

    pub fn errno(&self) -> Errno {
        self.errno
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.errno)?;
        match &self.explanation {
            Some(explanation) => write!(f, " ({explanation})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NetlinkError {}

impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        Self::new(Self::from(error.errno).kind(), error)
    }
}

/// The netlink protocol family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Route,
    Netfilter,
    SocketDiagnosis,
}

pub(crate) struct Socket {
    fd: OwnedFd,
    operation: &'static str,
}

impl Socket {
    /// `operation` is used in error messages.
    pub(crate) fn open(family: Family, operation: &'static str) -> Result<Self, NetlinkError> {
        let protocol = match family {
            Family::Route => None,
            Family::Netfilter => Some(net::netlink::NETFILTER),
            Family::SocketDiagnosis => Some(net::netlink::SOCK_DIAG),
        };
        let fail = |errno| NetlinkError::new(operation, errno);
        let fd = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )
        .map_err(fail)?;
        net::bind(&fd, &SocketAddrNetlink::new(0, 0)).map_err(fail)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))
            .map_err(fail)?;
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            enable(&fd, option).map_err(fail)?;
        }
        // Without this the kernel ignores the filter of a dump request and sends everything.
        enable(&fd, libc::NETLINK_GET_STRICT_CHK).map_err(fail)?;
        Ok(Self { fd, operation })
    }

    /// Sends one message and waits for its acknowledgement.
    pub(crate) fn request(&self, message: Message) -> Result<(), NetlinkError> {
        self.send(&message.finish(1))?;
        self.await_acknowledgements(1)
    }

    /// Sends a request and passes every message of the reply to `on_message`. The request must be for a dump or
    /// with an acknowledgement, because these mark the end.
    pub(crate) fn query(
        &self,
        message: Message,
        mut on_message: impl FnMut(u16, &[u8]),
    ) -> Result<(), NetlinkError> {
        self.send(&message.finish(1))?;
        loop {
            let datagram = self.receive()?;
            for (kind, body) in split(&datagram) {
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return self.parse_error(body).map_or(Ok(()), Err),
                    kind => on_message(kind, body),
                }
            }
        }
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        let sent = net::sendto(
            &self.fd,
            bytes,
            SendFlags::empty(),
            &SocketAddrNetlink::new(0, 0),
        )
        .map_err(|errno| NetlinkError::new(self.operation, errno))?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(NetlinkError::new(self.operation, Errno::MSGSIZE))
        }
    }

    /// Waits until `expected` messages are acknowledged or one is refused.
    pub(crate) fn await_acknowledgements(&self, expected: usize) -> Result<(), NetlinkError> {
        let mut acknowledged = 0;
        while acknowledged < expected {
            let datagram = self.receive()?;
            for (kind, body) in split(&datagram) {
                if kind == NLMSG_ERROR {
                    if let Some(error) = self.parse_error(body) {
                        return Err(error);
                    }
                    acknowledged += 1;
                }
            }
        }
        Ok(())
    }

    fn receive(&self) -> Result<Vec<u8>, NetlinkError> {
        let fail = |errno| NetlinkError::new(self.operation, errno);
        // Parts of a dump have at most 32 KiB; single messages are much smaller.
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match net::recv(&self.fd, &mut buffer, RecvFlags::TRUNC) {
                Ok((received, length)) if length > received => return Err(fail(Errno::MSGSIZE)),
                Ok((0, _)) => return Err(fail(Errno::CONNRESET)),
                Ok((received, _)) => {
                    buffer.truncate(received);
                    return Ok(buffer);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(fail(Errno::TIMEDOUT)),
                Err(errno) => return Err(fail(errno)),
            }
        }
    }

    /// `None` for an acknowledgement: an error message with code zero.
    fn parse_error(&self, body: &[u8]) -> Option<NetlinkError> {
        let code = body
            .first_chunk::<4>()
            .map_or(-libc::EBADMSG, |bytes| i32::from_ne_bytes(*bytes));
        if code == 0 {
            return None;
        }
        // The header of the request is between the code and the attributes.
        let explanation = body
            .get(4 + HEADER..)
            .and_then(|rest| Attributes::new(rest).first(ERROR_TEXT))
            .map(|attribute| attribute.text().into_owned());
        Some(NetlinkError {
            operation: self.operation,
            errno: Errno::from_raw_os_error(code.saturating_neg()),
            explanation,
        })
    }
}

/// `NLMSGERR_ATTR_MSG`.
const ERROR_TEXT: u16 = 1;

/// The messages of one datagram: type and body. Stops at the first malformed one.
fn split(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let body = rest.get(HEADER..length)?;
        rest = rest
            .get(length.next_multiple_of(4).min(rest.len())..)
            .unwrap_or_default();
        Some((kind, body))
    })
}

fn enable(fd: &OwnedFd, option: libc::c_int) -> Result<(), Errno> {
    const SIZE: libc::socklen_t = 4;
    const { assert!(size_of::<libc::c_int>() == SIZE as usize) };
    let on: libc::c_int = 1;
    // SAFETY: the option value is a live `c_int` and its exact size is passed beside it.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            SIZE,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}
