//! Finds the uid of the process at the other end of a loopback TCP connection.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::netlink::{Family, Message, NetlinkError, Socket};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const IPPROTO_TCP: u8 = 6;

/// Offsets in `struct inet_diag_msg`, which starts with four bytes before the socket id.
const ANSWER_ID: usize = 4;
const ANSWER_UID: usize = ANSWER_ID + 48 + 12;
const ANSWER_INODE: usize = ANSWER_UID + 4;

/// The uid that opened the socket bound to `peer` and connected to `local`, in this network namespace.
/// `None` if there is no such socket, or if its owner has closed it.
///
/// A closed socket still exists while TCP shuts the connection down, and kernels report uid 0 for it. It
/// has inode 0, so only sockets with an inode have an owner.
pub fn tcp_peer_uid(peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
    // A dual-stack listener reports IPv4 peers as mapped addresses, but their sockets are found by their IPv4
    // addresses, whatever family they have.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    if peer.is_ipv4() != local.is_ipv4() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the two ends of a connection have different address families",
        ));
    }
    match query_netlink(peer, local) {
        // Kernels without `tcp_diag` return `ENOENT`, as for a missing socket. Some container runtimes do not
        // support the protocol or its options at all.
        Err(error)
            if matches!(
                error.errno(),
                Errno::NOENT
                    | Errno::PROTONOSUPPORT
                    | Errno::NOPROTOOPT
                    | Errno::AFNOSUPPORT
                    | Errno::OPNOTSUPP
                    | Errno::INVAL
            ) =>
        {
            query_procfs(peer, local)
        }
        outcome => Ok(outcome?),
    }
}

fn query_netlink(peer: SocketAddr, local: SocketAddr) -> Result<Option<u32>, NetlinkError> {
    // `struct inet_diag_req_v2`: family, protocol, ext, pad, any state, socket id.
    let mut body = vec![family(peer.ip()), IPPROTO_TCP, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(socket_id(peer, local));
    let message = Message::new(SOCK_DIAG_BY_FAMILY, REQUEST | ACKNOWLEDGE).body(&body);
    let mut owner = None;
    let socket = Socket::open(Family::SocketDiagnosis, "look up a TCP socket")?;
    socket.query(message, |kind, body| {
        if kind == SOCK_DIAG_BY_FAMILY {
            owner = owner.or_else(|| owner_in(body, peer, local));
        }
    })?;
    Ok(owner)
}

fn family(ip: IpAddr) -> u8 {
    let family = match ip {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    u8::try_from(family).unwrap_or(0)
}

/// `struct inet_diag_sockid`, seen from the peer: its own address is the source.
fn socket_id(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut id = ports_and_addresses(source, destination);
    id.extend(0_u32.to_ne_bytes()); // any interface
    id.extend([0xff_u8; 8]); // any cookie
    id
}

fn ports_and_addresses(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut id = Vec::new();
    id.extend(source.port().to_be_bytes());
    id.extend(destination.port().to_be_bytes());
    for ip in [source.ip(), destination.ip()] {
        let mut octets = [0_u8; 16];
        match ip {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => octets.copy_from_slice(&ip.octets()),
        }
        id.extend(octets);
    }
    id
}

/// The owner in a reply. A listening socket is also returned if no connection matches, and it is not the peer, so
/// ports and addresses are compared. An IPv6 socket with an IPv4 connection reports mapped addresses.
fn owner_in(body: &[u8], peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let mapped = |end: SocketAddr| match end.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()),
        IpAddr::V6(_) => end,
    };
    let found = body.get(ANSWER_ID..)?;
    let is_peer = [
        ports_and_addresses(peer, local),
        ports_and_addresses(mapped(peer), mapped(local)),
    ]
    .iter()
    .any(|id| found.starts_with(id));
    let word = |offset: usize| Some(u32::from_ne_bytes(*body.get(offset..)?.first_chunk()?));
    (is_peer && word(ANSWER_INODE)? != 0).then_some(word(ANSWER_UID)?)
}

/// Fallback: the tables that `netstat` reads, which have the same columns.
fn query_procfs(peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = match fs::read_to_string(table) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(uid) = owner_in_table(&text, peer, local) {
            return Ok(Some(uid));
        }
    }
    Ok(None)
}

fn owner_in_table(text: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    text.lines().skip(1).find_map(|line| {
        // sl, local, remote, state, queues, timer, retransmits, uid, timeout, inode
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (source, destination) = (columns.get(1)?, columns.get(2)?);
        if table_address(source)? != peer || table_address(destination)? != local {
            return None;
        }
        let inode: u64 = columns.get(9)?.parse().ok()?;
        (inode != 0).then_some(columns.get(7)?.parse().ok()?)
    })
}

/// `0100007F:1522`: each 32-bit word of the address in host order, and the port.
fn table_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut octets = Vec::with_capacity(16);
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    let ip: IpAddr = match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok()?.into(),
        16 => <[u8; 16]>::try_from(octets).ok()?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn check_own_connection(listen: &str, connect: &str) {
        let listener = TcpListener::bind(listen).expect("bind");
        let port = listener.local_addr().expect("address").port();
        let client = TcpStream::connect(format!("{connect}:{port}")).expect("connect");
        let (server, peer) = listener.accept().expect("accept");
        let local = server.local_addr().expect("address");
        let own_uid = rustix::process::getuid().as_raw();
        assert_eq!(tcp_peer_uid(peer, local).expect("netlink"), Some(own_uid));
        assert_eq!(
            query_procfs(
                SocketAddr::new(peer.ip().to_canonical(), peer.port()),
                SocketAddr::new(local.ip().to_canonical(), local.port()),
            )
            .expect("procfs"),
            Some(own_uid)
        );
        drop(client);
        // Closed by its owner, still in TCP's tables: no owner.
        assert_eq!(tcp_peer_uid(peer, local).expect("netlink"), None);
    }

    #[test]
    fn the_owner_of_an_ipv4_socket_is_found() {
        check_own_connection("127.0.0.1:0", "127.0.0.1");
    }

    #[test]
    fn the_owner_of_an_ipv6_socket_is_found() {
        check_own_connection("[::1]:0", "[::1]");
    }

    #[test]
    fn the_owner_behind_a_dual_stack_listener_is_found() {
        check_own_connection("[::]:0", "127.0.0.1");
    }

    #[test]
    fn the_owner_of_a_mapped_socket_is_found() {
        check_own_connection("127.0.0.1:0", "[::ffff:127.0.0.1]");
    }

    #[test]
    fn a_connection_that_does_not_exist_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let local = listener.local_addr().expect("address");
        let unused = "127.0.0.1:1".parse().expect("address");
        assert_eq!(tcp_peer_uid(unused, local).expect("netlink"), None);
    }

    #[test]
    fn a_table_row_is_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:C350 0100007F:1522 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0\n   1: 0100007F:C351 0100007F:1522 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0\n";
        let local = "127.0.0.1:5410".parse().expect("address");
        let check = |port: u16, expected| {
            let peer = SocketAddr::new([127, 0, 0, 1].into(), port);
            assert_eq!(owner_in_table(text, peer, local), expected);
        };
        check(50000, Some(1000));
        check(50001, None);
        check(50002, None);
    }
}
