//! Real links, real rules, real packets; these tests need root. Each but one takes a fresh network
//! namespace for its host, so that they can run side by side and see every change they make; that one
//! asks the machine's real name servers.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use boxwood_sys::netlink::{self, Subnet};
use boxwood_sys::nftables;
use rustix::process::Pid;
use rustix::thread::LinkNameSpaceType;

use super::*;

const SHORT: Duration = Duration::from_millis(1500);
const GOOD: Duration = Duration::from_secs(10);

/// A process that sits in a network namespace of its own, as a box's init does.
struct Namespace {
    child: Child,
    netns: OwnedFd,
}

impl Namespace {
    fn new() -> Self {
        Self::with(&["--user", "--map-root-user", "--net"])
    }

    fn with(namespaces: &[&str]) -> Self {
        let child = Command::new("unshare")
            .args(namespaces)
            .args(["sleep", "600"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        let deadline = Instant::now() + GOOD;
        // `sleep` is only there after `unshare` has done its work.
        while std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != "sleep\n" {
            assert!(
                Instant::now() < deadline,
                "`unshare` did not make a namespace"
            );
            thread::sleep(Duration::from_millis(2));
        }
        let netns = OwnedFd::from(File::open(&path).unwrap());
        Self { child, netns }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Runs `work` on a thread that is in this namespace and ends there.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(self.netns.as_fd(), kind).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// What init does with its plan.
    fn configure(&self, inside: &InsideNetwork) {
        self.run(|| {
            netlink::loopback_up().unwrap();
            netlink::configure_interface(
                &inside.interface,
                inside.address,
                inside.prefix,
                inside.gateway,
                inside.mtu,
            )
            .unwrap();
        });
    }

    fn connects(&self, address: SocketAddr, within: Duration) -> bool {
        self.run(|| TcpStream::connect_timeout(&address, within).is_ok())
    }

    fn ip(&self, arguments: &[&str]) {
        let status = Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.child.id()))
            .arg("ip")
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success(), "ip {arguments:?}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Runs a test on a host that is its alone: every thread and child started in there stays there.
fn on_a_host_of_its_own(test: impl FnOnce() + Send) {
    let host = Namespace::with(&["--net"]);
    host.run(|| {
        netlink::loopback_up().unwrap();
        test();
    });
}

/// Everything of the host that a network of boxes may touch.
#[derive(Debug, PartialEq, Eq)]
struct Footprint {
    links: Vec<String>,
    chains: Vec<String>,
    forwarding: Vec<(String, String)>,
}

impl Footprint {
    fn of(tag: &Tag) -> Self {
        let table = tag.table();
        let links = netlink::links_with_prefix(&tag.links()).unwrap();
        let chains = nftables::chains().unwrap();
        let mut forwarding: Vec<(String, String)> = ["net/ipv4/ip_forward".to_owned()]
            .into_iter()
            .chain(
                netlink::links_with_prefix("")
                    .unwrap()
                    .into_iter()
                    .filter_map(|link| {
                        (!link.name.starts_with(LINK_PREFIX))
                            .then(|| format!("net/ipv4/conf/{}/forwarding", link.name))
                    }),
            )
            .filter_map(|name| {
                let value = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
                Some((name, value))
            })
            .collect();
        forwarding.sort();
        Self {
            links: links.into_iter().map(|link| link.name).collect(),
            chains: chains
                .into_iter()
                .filter(|chain| chain.table == table)
                .map(|chain| chain.name)
                .collect(),
            forwarding,
        }
    }
}

/// Listens on every address of the host until dropped.
fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn networks(instance: &str) -> (Networks, Tag) {
    let instance = format!("test-{instance}-{}", std::process::id());
    let networks = Networks::new(&instance, NetworkSettings::default());
    let tag = Tag::new(&instance);
    (networks, tag)
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

/// Asks `server` for the root's name servers, which every resolver knows.
fn asks(server: Ipv4Addr) -> bool {
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.set_read_timeout(Some(SHORT)).unwrap();
    (0..5).any(|_| {
        let mut answer = [0; 512];
        socket.send_to(question, (server, 53)).is_ok()
            && socket.recv(&mut answer).is_ok_and(|length| length >= 12)
            && answer[..2] == question[..2]
    })
}

/// Serves one resolver-like answer and counts nothing else: stands outside, behind the host.
struct Outside {
    namespace: Namespace,
    address: Ipv4Addr,
    link: &'static str,
}

impl Outside {
    /// A neighbour of the host on a network of its own, as the host's real ones are.
    fn new(link: &'static str, network: [u8; 3]) -> Self {
        let namespace = Namespace::new();
        let at = |last| Ipv4Addr::new(network[0], network[1], network[2], last);
        netlink::create_veth(VethPair {
            outside: link,
            inside: "eth0",
            netns: namespace.netns.as_fd(),
            mtu: 1500,
        })
        .unwrap();
        let index = netlink::link_by_name(link).unwrap().index;
        netlink::add_address(index, at(1), 24).unwrap();
        netlink::set_up(link).unwrap();
        namespace.run(|| {
            netlink::loopback_up().unwrap();
            netlink::configure_interface("eth0", at(2), 24, at(1), 1500).unwrap();
        });
        Self {
            namespace,
            address: at(2),
            link,
        }
    }

    fn listen(&self) -> (TcpListener, SocketAddr) {
        let address = self.address;
        let listener = self
            .namespace
            .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        (listener, SocketAddr::from((address, port)))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        drop(netlink::delete_link(self.link));
    }
}

#[test]
fn a_box_reaches_the_outside_and_its_name_servers() {
    on_a_host_of_its_own(|| {
        let (networks, tag) = networks("outside");
        let outside = Outside::new("bwtout0", [198, 51, 100]);
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        let lease = networks.attach(sandbox.pid()).unwrap();
        sandbox.configure(lease.inside());

        let (listener, address) = outside.listen();
        let (tell, told) = mpsc::channel();
        let server = thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let mut heard = [0; 4];
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(&heard).unwrap();
            tell.send(peer.ip()).unwrap();
        });
        let echoed = sandbox.run(|| {
            let mut stream = TcpStream::connect_timeout(&address, GOOD).unwrap();
            stream.write_all(b"ping").unwrap();
            let mut heard = [0; 4];
            stream.read_exact(&mut heard).unwrap();
            heard
        });
        assert_eq!(&echoed, b"ping");
        let seen_as = told.recv_timeout(GOOD).unwrap();
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
fn a_box_reaches_neither_the_host_nor_what_is_link_local() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("host");
        let sandbox = Namespace::new();
        let lease = networks.attach(sandbox.pid()).unwrap();
        let inside = lease.inside().clone();
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
        // The host's loopback, asked for as nobody would by accident: routed out of the box.
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert!(!sandbox.connects(loopback, SHORT));
        for denied in [
            "169.254.169.254",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            let denied = SocketAddr::from((denied.parse::<Ipv4Addr>().unwrap(), 80));
            let error = sandbox.run(|| TcpStream::connect_timeout(&denied, SHORT).unwrap_err());
            assert_ne!(
                error.kind(),
                ErrorKind::ConnectionRefused,
                "{denied} answered"
            );
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
            first.attach(boxes[0].pid()).unwrap(),
            first.attach(boxes[1].pid()).unwrap(),
            second.attach(boxes[2].pid()).unwrap(),
        ];
        let addresses: BTreeSet<Ipv4Addr> =
            leases.iter().map(|lease| lease.inside().address).collect();
        assert_eq!(addresses.len(), 3);
        for (sandbox, lease) in boxes.iter().zip(&leases) {
            sandbox.configure(lease.inside());
        }
        for (at, lease) in leases.iter().enumerate() {
            let listener = boxes[at].run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
            let address = SocketAddr::from((
                lease.inside().address,
                listener.local_addr().unwrap().port(),
            ));
            assert!(boxes[at].connects(address, GOOD), "{address} from itself");
            for (from, sandbox) in boxes.iter().enumerate().filter(|(from, _)| *from != at) {
                assert!(
                    !sandbox.connects(address, SHORT),
                    "box {at} from box {from}"
                );
            }
            // Nor does the host, whoever is logged in there.
            assert!(
                TcpStream::connect_timeout(&address, SHORT).is_err(),
                "box {at} from the host"
            );
        }
    });
}

#[test]
fn nobody_outside_opens_a_connection_into_a_box() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("inbound");
        let outside = Outside::new("bwtout1", [203, 0, 113]);
        let sandbox = Namespace::new();
        let lease = networks.attach(sandbox.pid()).unwrap();
        sandbox.configure(lease.inside());
        let listener = sandbox.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        // The neighbour's default route leads to the host, so its packets do arrive here.
        let address = SocketAddr::from((lease.inside().address, port));
        assert!(!outside.namespace.connects(address, SHORT));
        // And forwarding that was switched on for boxes is for boxes: not from neighbour to neighbour.
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
        let lease = networks.attach(sandbox.pid()).unwrap();
        let inside = lease.inside().clone();
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

#[test]
fn another_programs_drop_policy_is_passed_and_left_as_it_was() {
    on_a_host_of_its_own(|| {
        let (networks, _) = networks("obstacle");
        let table = format!("bwtest{}", std::process::id());
        let nft = |arguments: &[&str]| {
            let output = Command::new("nft").args(arguments).output().unwrap();
            assert!(output.status.success(), "nft {arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let outside = Outside::new("bwtout4", [198, 51, 102]);
        nft(&["add", "table", "ip", &table]);
        let policy = "{ type filter hook forward priority 0; policy drop; }";
        nft(&["add", "chain", "ip", &table, "FORWARD", policy]);
        let before = nft(&["list", "table", "ip", &table]);
        assert!(
            Networks::obstacles()
                .unwrap()
                .iter()
                .any(|obstacle| obstacle.table == table)
        );
        let sandbox = Namespace::new();
        let lease = networks.attach(sandbox.pid()).unwrap();
        sandbox.configure(lease.inside());
        let (_listener, address) = outside.listen();
        let reached = sandbox.connects(address, GOOD);
        lease.release().unwrap();
        let after = nft(&["list", "table", "ip", &table]);
        nft(&["delete", "table", "ip", &table]);
        assert!(reached, "stopped by the other table");
        assert_eq!(after, before);
    });
}

#[test]
fn what_a_dead_daemon_left_is_swept() {
    on_a_host_of_its_own(|| {
        let instance = format!("test-crash-{}", std::process::id());
        let tag = Tag::new(&instance);
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        let networks = Networks::new(&instance, NetworkSettings::default());
        // A killed daemon runs no destructor.
        std::mem::forget(networks.attach(sandbox.pid()).unwrap());
        assert_ne!(Footprint::of(&tag), before);
        Networks::sweep(&instance).unwrap();
        assert_eq!(Footprint::of(&tag), before);
        Networks::sweep(&instance).unwrap();
    });
}

#[test]
fn a_failed_attach_leaves_nothing() {
    on_a_host_of_its_own(|| {
        let (networks, tag) = networks("failed");
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        // The name inside is taken, so the cable cannot be made.
        sandbox.ip(&["link", "add", "eth0", "type", "veth"]);
        let error = networks.attach(sandbox.pid()).unwrap_err();
        assert!(matches!(error, NetError::Link { .. }), "{error:?}");
        assert_eq!(Footprint::of(&tag), before);
    });
}

#[test]
fn a_full_pool_says_which_setting_to_change() {
    on_a_host_of_its_own(|| {
        let settings = NetworkSettings {
            pool: Some("10.214.0.0/30".parse::<Subnet>().unwrap()),
            ..NetworkSettings::default()
        };
        let networks = Networks::new(&format!("test-full-{}", std::process::id()), settings);
        let boxes = [Namespace::new(), Namespace::new()];
        let _lease = networks.attach(boxes[0].pid()).unwrap();
        let error = networks.attach(boxes[1].pid()).unwrap_err();
        assert!(matches!(error, NetError::PoolExhausted { .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("network.pool"));
    });
}

#[test]
fn a_hundred_leases_fifty_at_a_time_leave_nothing() {
    on_a_host_of_its_own(|| {
        let (networks, tag) = networks("churn");
        let before = Footprint::of(&tag);
        let sandbox = Namespace::new();
        for _ in 0..100 {
            networks.attach(sandbox.pid()).unwrap().release().unwrap();
        }
        assert_eq!(Footprint::of(&tag), before);

        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    let sandbox = Namespace::new();
                    let lease = networks.attach(sandbox.pid()).unwrap();
                    sandbox.configure(lease.inside());
                    // Half of them die before their network is taken away.
                    if lease.inside().address.octets()[3] % 8 == 2 {
                        drop(sandbox);
                    }
                    lease.release().unwrap();
                });
            }
        });
        let took = started.elapsed();
        assert!(took < Duration::from_secs(20), "50 boxes took {took:?}");
        assert_eq!(Footprint::of(&tag), before);
    });
}

#[test]
fn the_machines_name_servers_answer_a_box() {
    let (networks, tag) = networks("dns");
    let sandbox = Namespace::new();
    let lease = networks.attach(sandbox.pid()).unwrap();
    sandbox.configure(lease.inside());
    let servers = lease.inside().dns.clone();
    let answering: Vec<Ipv4Addr> = servers.into_iter().filter(|server| asks(*server)).collect();
    assert!(
        !answering.is_empty(),
        "no name server answers the host itself"
    );
    for server in answering {
        assert!(
            sandbox.run(|| asks(server)),
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
