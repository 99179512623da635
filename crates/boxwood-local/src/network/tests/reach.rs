//! What a box can reach, and what can reach a box.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::sync::mpsc;

use super::*;

#[test]
fn a_box_reaches_the_outside_and_is_seen_as_the_host() {
    on_a_host_of_its_own(|| {
        let (networks, tag) = networks("outside");
        let outside = Outside::new("bwtout0", [198, 51, 100]);
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        let lease = sandbox.attach(&networks).unwrap();
        sandbox.configure(lease.interface());

        let (listener, address) = outside.listen();
        let (sender, receiver) = mpsc::channel();
        let server = thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            sender.send(peer.ip()).unwrap();
        });
        let echoed = sandbox.run(|| {
            let mut stream = TcpStream::connect_timeout(&address, GOOD).unwrap();
            stream.write_all(b"ping").unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).unwrap();
            bytes
        });
        assert_eq!(&echoed, b"ping");
        let seen_as = receiver.recv_timeout(GOOD).unwrap();
        assert_eq!(
            seen_as,
            IpAddr::from(Ipv4Addr::new(198, 51, 100, 1)),
            "not masqueraded"
        );
        server.join().unwrap();

        lease.release().unwrap();
        assert_eq!(Footprint::of(&tag), before);
    });
}

#[test]
fn the_machines_name_servers_answer_a_box() {
    let (networks, tag) = networks("dns");
    let sandbox = Namespace::new();
    let lease = sandbox.attach(&networks).unwrap();
    sandbox.configure(lease.interface());
    let servers = lease.inside.dns.clone();
    let answering: Vec<Ipv4Addr> = servers
        .into_iter()
        .filter(|server| answers_queries(*server))
        .collect();
    assert!(
        !answering.is_empty(),
        "no name server answers the host itself"
    );
    for server in answering {
        assert!(
            sandbox.run(|| answers_queries(server)),
            "{server} does not answer the box"
        );
        let address = SocketAddr::from((server, 53));
        if TcpStream::connect_timeout(&address, SHORT).is_ok() {
            assert!(sandbox.connects(address, GOOD), "{address} by TCP");
        }
    }
    lease.release().unwrap();
    let after = Footprint::of(&tag);
    assert!(
        after.links.is_empty() && after.chains.is_empty(),
        "{after:?}"
    );
}

#[test]
fn a_box_does_not_reach_the_host() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("host");
        let sandbox = Namespace::new();
        let lease = sandbox.attach(&networks).unwrap();
        let inside = lease.interface().clone();
        sandbox.configure(&inside);
        let (_listener, port) = listener();
        let addresses = host_addresses();
        assert!(addresses.contains(&inside.gateway));
        for address in addresses {
            let address = SocketAddr::from((address, port));
            assert!(
                TcpStream::connect_timeout(&address, GOOD).is_ok(),
                "{address} from the host"
            );
            assert!(!sandbox.connects(address, SHORT), "{address} from the box");
        }
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert!(!sandbox.connects(loopback, SHORT));
    });
}

#[test]
fn a_box_does_not_reach_metadata_addresses() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("metadata");
        let outside = Outside::new("bwtout0", [198, 51, 100]);
        let addresses = metadata_addresses(&outside);
        let sandbox = Namespace::new();
        let lease = sandbox.attach(&networks).unwrap();
        sandbox.configure(lease.interface());
        let (_listener, open) = outside.listen();
        assert!(sandbox.connects(open, GOOD), "the neighbour's own address");
        for address in addresses {
            let address = SocketAddr::from((address, open.port()));
            assert!(
                TcpStream::connect_timeout(&address, GOOD).is_ok(),
                "{address} from the host"
            );
            assert!(!sandbox.connects(address, SHORT), "{address} from the box");
        }
    });
}

#[test]
fn a_box_reaches_no_other_box_of_any_daemon() {
    on_a_host_of_its_own(|| {
        let (first, _) = networks("first");
        let (second, _) = networks("second");
        let boxes = [Namespace::new(), Namespace::new(), Namespace::new()];
        let leases = [
            boxes[0].attach(&first).unwrap(),
            boxes[1].attach(&first).unwrap(),
            boxes[2].attach(&second).unwrap(),
        ];
        let addresses: BTreeSet<Ipv4Addr> = leases
            .iter()
            .map(|lease| lease.interface().address)
            .collect();
        assert_eq!(addresses.len(), 3);
        for (sandbox, lease) in boxes.iter().zip(&leases) {
            sandbox.configure(lease.interface());
        }
        for (index, lease) in leases.iter().enumerate() {
            let listener =
                boxes[index].run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
            let address = SocketAddr::from((
                lease.interface().address,
                listener.local_addr().unwrap().port(),
            ));
            assert!(
                boxes[index].connects(address, GOOD),
                "{address} from itself"
            );
            for (from, sandbox) in boxes.iter().enumerate().filter(|(from, _)| *from != index) {
                assert!(
                    !sandbox.connects(address, SHORT),
                    "box {index} from box {from}"
                );
            }
            // The host cannot either.
            assert!(
                TcpStream::connect_timeout(&address, SHORT).is_err(),
                "box {index} from the host"
            );
        }
    });
}

#[test]
fn connections_into_a_box_are_refused() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("inbound");
        let outside = Outside::new("bwtout1", [203, 0, 113]);
        let sandbox = Namespace::new();
        let lease = sandbox.attach(&networks).unwrap();
        sandbox.configure(lease.interface());
        let listener = sandbox.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        // The neighbour's default route leads to the host, so its packets arrive there.
        let address = SocketAddr::from((lease.interface().address, port));
        assert!(!outside.namespace.connects(address, SHORT));
        // Forwarding was enabled for boxes, so neighbours do not reach each other either.
        let other = Outside::new("bwtout2", [192, 88, 98]);
        let (_listener, elsewhere) = other.listen();
        assert!(!outside.namespace.connects(elsewhere, SHORT));
    });
}

#[test]
fn a_box_cannot_send_from_another_address() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("spoof");
        let outside = Outside::new("bwtout3", [198, 51, 101]);
        let sandbox = Namespace::new();
        let lease = sandbox.attach(&networks).unwrap();
        let inside = lease.interface().clone();
        sandbox.configure(&inside);
        let receiver = outside
            .namespace
            .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        receiver.set_read_timeout(Some(SHORT)).unwrap();
        let target = SocketAddr::from((outside.address, receiver.local_addr().unwrap().port()));
        let send_from = |source: Ipv4Addr| {
            sandbox.run(|| {
                let socket = UdpSocket::bind((source, 0)).unwrap();
                socket.send_to(b"x", target).ok();
            });
            receiver.recv_from(&mut [0; 8]).is_ok()
        };
        assert!(send_from(inside.address), "its own address");
        let neighbour = Ipv4Addr::from_bits(inside.address.to_bits() ^ 0x100);
        for spoofed in [neighbour, Ipv4Addr::new(192, 0, 2, 99)] {
            sandbox.ip(&["addr", "add", &format!("{spoofed}/32"), "dev", "eth0"]);
            assert!(!send_from(spoofed), "{spoofed}");
        }
    });
}

/// The filter inside the box does not depend on the one on the host.
#[test]
fn without_the_hosts_table_the_filter_inside_still_refuses() {
    on_a_host_of_its_own(|| {
        let (networks, tag) = networks("second");
        let outside = Outside::new("bwtout0", [198, 51, 100]);
        let metadata = metadata_addresses(&outside);
        let boxes = [Namespace::new(), Namespace::new(), Namespace::new()];
        let [guarded, neighbour, unguarded] = &boxes;
        let _lease = guarded.attach_guarded(&networks);
        let (at_neighbour, at_unguarded) = (
            neighbour.attach(&networks).unwrap(),
            unguarded.attach(&networks).unwrap(),
        );
        neighbour.configure(at_neighbour.interface());
        unguarded.configure(at_unguarded.interface());
        let (_listener, port) = listener();
        let (_outer, open) = outside.listen();
        assert!(guarded.connects(open, GOOD), "the outside");

        nftables::delete_table(&tag.table()).unwrap();
        let inner = neighbour.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        let inner = inner.local_addr().unwrap().port();
        let refused = host_addresses()
            .into_iter()
            .map(|address| SocketAddr::from((address, port)))
            .chain([SocketAddr::from((at_neighbour.interface().address, inner))])
            .chain(
                metadata
                    .into_iter()
                    .map(|address| (address, open.port()).into()),
            );
        for address in refused {
            assert!(
                unguarded.connects(address, GOOD),
                "{address} without a filter"
            );
            assert!(!guarded.connects(address, SHORT), "{address}");
        }
        assert!(
            guarded.connects(open, GOOD),
            "the outside, without the table"
        );
    });
}

#[test]
fn a_name_server_on_the_host_answers_through_the_filters_of_host_and_box() {
    on_a_host_of_its_own(|| {
        let _outside = Outside::new("bwtout0", [198, 51, 100]);
        let server = Ipv4Addr::new(198, 51, 100, 1);
        let settings = NetworkSettings {
            dns: vec![server],
            ..NetworkSettings::default()
        };
        let networks = Networks::new(&format!("test-names-{}", std::process::id()), settings);
        let sandbox = Namespace::new();
        let lease = sandbox.attach_guarded(&networks);
        assert_eq!(lease.inside.dns, [server]);
        let _tcp = [53, 54].map(|port| TcpListener::bind((server, port)).unwrap());
        let udp = UdpSocket::bind((server, 53)).unwrap();
        udp.set_read_timeout(Some(GOOD)).unwrap();
        assert!(sandbox.connects((server, 53).into(), GOOD), "by TCP");
        assert!(
            !sandbox.connects((server, 54).into(), SHORT),
            "another port"
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut query = [0; 64];
                let (length, from) = udp.recv_from(&mut query).unwrap();
                udp.send_to(&query[..length], from).unwrap();
            });
            let answered = sandbox.run(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                socket.set_read_timeout(Some(GOOD)).unwrap();
                socket.send_to(b"question", (server, 53)).unwrap();
                socket.recv(&mut [0; 64]).is_ok()
            });
            assert!(answered, "by UDP");
        });
    });
}

/// Listens on every address of the host until dropped.
fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Addresses of the host that are not its loopback and not a box's gateway.
fn host_addresses() -> Vec<Ipv4Addr> {
    let routes = netlink::routes().unwrap();
    let own: BTreeSet<Ipv4Addr> = routes
        .iter()
        .filter(|route| route.local && route.destination.prefix() == 32)
        .map(|route| route.destination.address())
        .filter(|address| !address.is_loopback())
        .collect();
    own.into_iter().collect()
}

/// Queries `server` for the root name servers, which every resolver can answer.
fn answers_queries(server: Ipv4Addr) -> bool {
    let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.set_read_timeout(Some(SHORT)).unwrap();
    (0..5).any(|_| {
        let mut answer = [0; 512];
        socket.send_to(query, (server, 53)).is_ok()
            && socket.recv(&mut answer).is_ok_and(|length| length >= 12)
            && answer[..2] == query[..2]
    })
}
