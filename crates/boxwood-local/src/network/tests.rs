//! Tests with real links, rules and packets; they need root. Each runs in its own network namespace, except
//! one that queries the machine's real name servers.

mod reach;
mod rootless;
mod traces;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use boxwood_sys::netlink;
use boxwood_sys::nftables::{self, InsideRules};
use rustix::thread::LinkNameSpaceType;

use super::*;

const SHORT: Duration = Duration::from_millis(1500);
const GOOD: Duration = Duration::from_secs(10);

/// A process in its own network namespace, like the init of a box.
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
        // `sleep` appears only after `unshare` has finished.
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

    fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// Without the rules inside the box, so that only the host's table applies.
    fn attach(&self, networks: &Arc<Networks>) -> Result<Attached, NetError> {
        let (lease, inside) = networks.attach_namespace(self.netns.as_fd())?;
        Ok(Attached { lease, inside })
    }

    /// Installs the rules inside the box and configures the interface, in the same order as init.
    fn attach_guarded(&self, networks: &Arc<Networks>) -> Attached {
        let attached = self.attach(networks).unwrap();
        let rules = rules_of(&attached.inside);
        self.run(|| nftables::guard_inside(&rules).unwrap());
        self.configure(attached.interface());
        attached
    }

    /// Runs `work` on a thread in this namespace.
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

    /// Configures the interface like init does.
    fn configure(&self, inside: &InsideInterface) {
        self.run(|| {
            netlink::loopback_up().unwrap();
            netlink::configure_interface(
                &inside.name,
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

/// A box with its network.
#[derive(Debug)]
struct Attached {
    lease: NetLease,
    inside: InsideNetwork,
}

impl Attached {
    fn interface(&self) -> &InsideInterface {
        self.inside.interface.as_ref().unwrap()
    }

    fn release(self) -> Result<(), NetError> {
        self.lease.release()
    }
}

/// The rules that init installs inside the box.
fn rules_of(inside: &InsideNetwork) -> InsideRules {
    let subnet = |(address, prefix): &(Ipv4Addr, u8)| Subnet::new(*address, *prefix);
    InsideRules {
        resolvers: inside.dns.clone(),
        denied: inside.denied.iter().map(subnet).collect(),
    }
}

/// Runs a test in its own network namespace, which all its threads and children share.
fn on_a_host_of_its_own(test: impl FnOnce() + Send) {
    let host = Namespace::with(&["--net"]);
    host.run(|| {
        netlink::loopback_up().unwrap();
        // A new namespace inherits the machine's setting, and container engines enable forwarding there.
        for file in ["ip_forward", "conf/default/forwarding"] {
            std::fs::write(format!("/proc/sys/net/ipv4/{file}"), "0").unwrap();
        }
        test();
    });
}

/// The state of the host that networks of boxes may change.
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

/// Gives the neighbour the addresses of metadata services, and the host a route to them.
fn metadata_addresses(outside: &Outside) -> Vec<Ipv4Addr> {
    let addresses = [
        "169.254.169.254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
    ];
    for address in addresses {
        outside.namespace.ip(&["addr", "add", address, "dev", "lo"]);
        let via = outside.address.to_string();
        let route = ["route", "add", address, "via", &via];
        assert!(Command::new("ip").args(route).status().unwrap().success());
    }
    addresses.iter().map(|text| text.parse().unwrap()).collect()
}

fn networks(instance: &str) -> (Arc<Networks>, Tag) {
    let instance = format!("test-{instance}-{}", std::process::id());
    let networks = Networks::new(&instance, NetworkSettings::default());
    let tag = Tag::new(&instance);
    (networks, tag)
}

/// A machine outside of the host.
struct Outside {
    namespace: Namespace,
    address: Ipv4Addr,
    link: &'static str,
}

impl Outside {
    /// A neighbour of the host in its own network.
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
