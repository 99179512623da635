//! Hosts, boxes and addresses that a box must not reach, with the network off and with it on.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use boxwood_api::Network;

use crate::escape::attack::attack;
use crate::harness::case::cases;
use crate::harness::host_side::{Listeners, host_addresses};
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{Scope, StartError};

cases! { "network":
    cannot_reach_the_network_when_off,
    cannot_reach_the_host_when_off,
    cannot_reach_the_host_when_on,
    cannot_reach_the_host_without_the_hosts_packet_filter,
    cannot_reach_the_hosts_abstract_sockets_when_off,
    cannot_reach_the_hosts_abstract_sockets_when_on,
    cannot_reach_the_metadata_address_when_off,
    cannot_reach_the_metadata_address_when_on,
    cannot_reach_another_box_when_off,
    cannot_reach_another_box_when_on,
    cannot_listen_on_the_hosts_ports_when_off,
    cannot_listen_on_the_hosts_ports_when_on,
}

/// Without a network on the host, a request for one is refused. The box must never get the host's network instead.
pub(super) async fn refused(fixture: &Fixture) -> anyhow::Result<()> {
    match fixture
        .try_start(&BoxSpec::new().network(Network::On))
        .await?
    {
        Ok(_) => bail!("a network where none was expected"),
        Err(
            StartError::Unsupported { .. }
            | StartError::Missing { .. }
            | StartError::Unavailable { .. },
        ) => Ok(()),
        Err(other) => Err(other).context("refusing the network"),
    }
}

async fn networked(fixture: &Fixture, network: Network) -> anyhow::Result<Option<TestBox>> {
    if network == Network::On && !fixture.host().network {
        refused(fixture).await?;
        return Ok(None);
    }
    Ok(Some(fixture.start(&BoxSpec::new().network(network)).await?))
}

async fn cannot_reach_the_network_when_off(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let servers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut targets: Vec<String> = servers
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver "))
        .flat_map(|server| {
            let server = server.trim();
            [format!("tcp:{server}:53"), format!("udp:{server}:53")]
        })
        .collect();
    // Documentation and well-known addresses. There must be no route, even if the host can reach them.
    for address in [
        "192.0.2.1",
        "198.51.100.7",
        "1.1.1.1",
        "8.8.8.8",
        "10.0.0.1",
        "172.17.0.1",
        "192.168.1.1",
        "2001:db8::1",
        "ff02::1",
        "255.255.255.255",
    ] {
        targets.push(format!("tcp:{address}:80"));
        targets.push(format!("udp:{address}:53"));
    }
    let args: Vec<&str> = targets.iter().map(String::as_str).collect();
    let report = attack!("reach", 20)
        .assert_refused(&test_box, &args)
        .await?;
    ensure!(
        report.lines.contains("interfaces: held ['lo']"),
        "interfaces beside lo: {}",
        report.lines
    );
    ensure!(
        !report.lines.contains("ETIMEDOUT"),
        "packets left the box: {}",
        report.lines
    );
    Ok(())
}

/// Attacks the host's addresses, loopback included, the gateway of the box, and the daemon's default port.
async fn host_receives_nothing(fixture: &Fixture, network: Network) -> anyhow::Result<()> {
    let Some(test_box) = networked(fixture, network).await? else {
        return Ok(());
    };
    let listeners = Listeners::open().await?;
    // Read while the box runs, so that the host's end of its link is among them.
    let mut addresses: Vec<String> = host_addresses()?
        .iter()
        .filter(|address| !is_link_local(**address))
        .map(ToString::to_string)
        .collect();
    addresses.extend(["127.0.0.2", "127.1.2.3", "0.0.0.0", "GATEWAY"].map(str::to_owned));
    let mut targets = Vec::new();
    for address in &addresses {
        for port in [listeners.loopback_port, listeners.any_port] {
            targets.push(format!("tcp:{address}:{port}"));
        }
        targets.push(format!("udp:{address}:{}", listeners.udp_port));
        targets.push(format!("tcp:{address}:5410"));
    }
    let args: Vec<&str> = targets.iter().map(String::as_str).collect();
    let attacked = attack!("reach", 20).assert_refused(&test_box, &args).await;
    listeners.check_no_arrivals(attacked).await?;
    Ok(())
}

/// The packet filter inside the box works alone: without the rules of the host, the host, another box and the metadata
/// address are still unreachable. Boxes of an ordinary user have no rules on the host.
async fn cannot_reach_the_host_without_the_hosts_packet_filter(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    if !fixture.host().is_root() || !fixture.host().network {
        return Ok(());
    }
    let (one, two) = (
        fixture.start(&BoxSpec::new().network(Network::On)).await?,
        fixture.start(&BoxSpec::new().network(Network::On)).await?,
    );
    let running = listening(&one).await?;
    let mut targets = listener_addresses(&one).await?;
    let listeners = Listeners::open().await?;
    let _metadata = Borrowed::take(METADATA).await?;
    let mut addresses: Vec<String> = host_addresses()?
        .iter()
        .filter(|address| address.is_ipv4() && !address.is_loopback())
        .map(ToString::to_string)
        .collect();
    ensure!(addresses.iter().any(|address| address == METADATA));
    addresses.push("GATEWAY".to_owned());
    for address in &addresses {
        targets.push(format!("tcp:{address}:{}", listeners.any_port));
        targets.push(format!("udp:{address}:{}", listeners.udp_port));
    }
    let args: Vec<&str> = targets.iter().map(String::as_str).collect();
    let table = host_table(&two).await?;
    // Emptied, not deleted: the backend also reads from the table which interfaces it has to block again.
    for chain in ["source", "host", "caller", "forward"] {
        run_on_host("nft", &["flush", "chain", "inet", &table, chain]).await?;
    }
    let attacked = attack!("reach", 8).assert_refused(&two, &args).await;
    listeners.check_no_arrivals(attacked).await?;
    no_connection_arrived(&one).await?;
    running.control.signal(9, Scope::Tree).await?;
    Ok(())
}

/// The name of the host's nftables table for a box. The link with the box's gateway address has the same tag.
async fn host_table(test_box: &TestBox) -> anyhow::Result<String> {
    let routes = test_box.stdout_of("cat /proc/net/route").await?;
    let gateway = routes
        .lines()
        .filter_map(|line| line.split('\t').nth(2))
        .filter_map(|word| u32::from_str_radix(word, 16).ok())
        .find(|number| *number != 0)
        .map(|number| Ipv4Addr::from(number.to_ne_bytes()))
        .context("the box has no gateway")?;
    let addresses = run_on_host("ip", &["-o", "-4", "addr"]).await?;
    let link = addresses
        .lines()
        .find(|line| line.contains(&format!(" {gateway}/")))
        .and_then(|line| line.split_whitespace().nth(1))
        .with_context(|| format!("no link of the host has {gateway}"))?;
    let tag = link
        .strip_prefix("bxw")
        .and_then(|rest| rest.split_once('-'))
        .with_context(|| format!("`{link}` is not a box's link"))?
        .0;
    Ok(format!("boxwood-{tag}"))
}

async fn run_on_host(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .output()
        .await
        .with_context(|| format!("running `{program}`"))?;
    ensure!(
        output.status.success(),
        "`{program} {}`: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        // Such an address needs a scope, and is not on the box's own link.
        IpAddr::V6(address) => (address.segments()[0] & 0xffc0) == 0xfe80,
    }
}

async fn cannot_reach_the_host_when_off(fixture: &Fixture) -> anyhow::Result<()> {
    host_receives_nothing(fixture, Network::Off).await
}

async fn cannot_reach_the_host_when_on(fixture: &Fixture) -> anyhow::Result<()> {
    host_receives_nothing(fixture, Network::On).await
}

async fn abstract_sockets_receive_nothing(
    fixture: &Fixture,
    network: Network,
) -> anyhow::Result<()> {
    let Some(test_box) = networked(fixture, network).await? else {
        return Ok(());
    };
    let listeners = Listeners::open().await?;
    let attacked = attack!("reach", 2)
        .assert_refused(
            &test_box,
            &[&format!("abstract::{}", listeners.abstract_name)],
        )
        .await;
    listeners.check_no_arrivals(attacked).await?;
    let names = test_box.stdout_of("cat /proc/net/unix").await?;
    ensure!(
        !names.contains(&listeners.abstract_name),
        "the box sees the host's sockets"
    );
    Ok(())
}

async fn cannot_reach_the_hosts_abstract_sockets_when_off(fixture: &Fixture) -> anyhow::Result<()> {
    abstract_sockets_receive_nothing(fixture, Network::Off).await
}

async fn cannot_reach_the_hosts_abstract_sockets_when_on(fixture: &Fixture) -> anyhow::Result<()> {
    abstract_sockets_receive_nothing(fixture, Network::On).await
}

const METADATA: &str = "169.254.169.254";

/// An address on the host's loopback for as long as a case needs it.
struct Borrowed(&'static str);

impl Borrowed {
    /// Waits while another case has it.
    async fn take(address: &'static str) -> anyhow::Result<Self> {
        for _ in 0..300 {
            if Self::ip("add", address) {
                return Ok(Self(address));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!(
            "`ip addr add {address}/32 dev lo` fails\nhint: if a killed test has left the address, run `ip addr del \
             {address}/32 dev lo`"
        )
    }

    fn ip(verb: &str, address: &str) -> bool {
        std::process::Command::new("ip")
            .args(["addr", verb, &format!("{address}/32"), "dev", "lo"])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        Self::ip("del", self.0);
    }
}

async fn metadata_addresses_are_unreachable(
    fixture: &Fixture,
    network: Network,
) -> anyhow::Result<()> {
    let Some(test_box) = networked(fixture, network).await? else {
        return Ok(());
    };
    // As root the address exists on the host and has a listener, so that a refusal comes from the box and not from
    // an empty network.
    let mut tasks = Vec::new();
    let arrived = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let borrowed = if fixture.host().is_root() {
        let borrowed = Borrowed::take(METADATA).await?;
        let listener = tokio::net::TcpListener::bind((METADATA, 80)).await?;
        let arrived = std::sync::Arc::clone(&arrived);
        tasks.push(tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                arrived.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }));
        Some(borrowed)
    } else {
        None
    };
    let outcome = attack!("reach", 6)
        .assert_refused(
            &test_box,
            &[
                "tcp:169.254.169.254:80",
                "udp:169.254.169.254:53",
                "tcp:169.254.170.2:80",
                "tcp:169.254.0.1:80",
                "tcp:fd00:ec2::254:80",
                "tcp:fe80::a9fe:a9fe:80",
            ],
        )
        .await;
    // The listener must be closed before another case may have the address: an aborted task closes it later.
    for task in tasks {
        task.abort();
        _ = task.await;
    }
    drop(borrowed);
    outcome?;
    let arrived = arrived.load(std::sync::atomic::Ordering::SeqCst);
    ensure!(
        arrived == 0,
        "{arrived} calls arrived at the metadata address"
    );
    Ok(())
}

async fn cannot_reach_the_metadata_address_when_off(fixture: &Fixture) -> anyhow::Result<()> {
    metadata_addresses_are_unreachable(fixture, Network::Off).await
}

async fn cannot_reach_the_metadata_address_when_on(fixture: &Fixture) -> anyhow::Result<()> {
    metadata_addresses_are_unreachable(fixture, Network::On).await
}

/// Listens on every address, TCP and UDP, and writes a byte to a file for each connection and datagram.
const LISTEN: &str = "
import socket, threading, time
def received(*_): open('/workspace/received', 'a').write('x')
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(('::', 7777)); s.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('0.0.0.0', 7778))
def tcp():
    while True: s.accept(); received()
def udp():
    while True: u.recv(64); received()
for work in (tcp, udp): threading.Thread(target=work, daemon=True).start()
open('/workspace/up', 'w')
time.sleep(600)";

async fn listening(test_box: &TestBox) -> anyhow::Result<crate::RunningCommand> {
    let running = test_box.spawn(request(&["python3", "-c", LISTEN])).await?;
    test_box
        .stdout_of(
            "for i in $(seq 100); do [ -e /workspace/up ] && exit 0; sleep 0.1; done; exit 1",
        )
        .await
        .context("the listener in the box did not come up")?;
    Ok(running)
}

async fn other_boxes_receive_nothing(fixture: &Fixture, network: Network) -> anyhow::Result<()> {
    let Some(one) = networked(fixture, network).await? else {
        return Ok(());
    };
    let Some(two) = networked(fixture, network).await? else {
        return Ok(());
    };
    let running = listening(&one).await?;
    let mut targets = listener_addresses(&one).await?;
    targets.extend(["tcp:127.0.0.1:7777", "tcp:::1:7777", "tcp:GATEWAY:7777"].map(str::to_owned));
    targets.sort_unstable();
    targets.dedup();
    let args: Vec<&str> = targets.iter().map(String::as_str).collect();
    // If both boxes have the same private address, the second connects to itself, where nothing listens.
    attack!("reach", 4).assert_refused(&two, &args).await?;
    no_connection_arrived(&one).await?;
    running.control.signal(9, Scope::Tree).await?;
    Ok(())
}

/// Targets for every address of a box that [`LISTEN`]s.
async fn listener_addresses(test_box: &TestBox) -> anyhow::Result<Vec<String>> {
    let trie = test_box
        .stdout_of("cat /proc/net/fib_trie; cat /proc/net/if_inet6")
        .await?;
    let mut targets = Vec::new();
    let mut last = "";
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address;
        } else if line == "/32 host LOCAL" {
            targets.push(format!("tcp:{last}:7777"));
            targets.push(format!("udp:{last}:7778"));
        } else if let Some(Ok(number)) = line
            .split_whitespace()
            .next()
            .filter(|digits| digits.len() == 32)
            .map(|digits| u128::from_str_radix(digits, 16))
        {
            targets.push(format!("tcp:{}:7777", std::net::Ipv6Addr::from(number)));
        }
    }
    Ok(targets)
}

async fn no_connection_arrived(test_box: &TestBox) -> anyhow::Result<()> {
    let received = test_box
        .stdout_of("cat /workspace/received 2>/dev/null | wc -c")
        .await?;
    ensure!(
        received.trim() == "0",
        "{received} connections came from the other box"
    );
    Ok(())
}

async fn cannot_reach_another_box_when_off(fixture: &Fixture) -> anyhow::Result<()> {
    other_boxes_receive_nothing(fixture, Network::Off).await
}

async fn cannot_reach_another_box_when_on(fixture: &Fixture) -> anyhow::Result<()> {
    other_boxes_receive_nothing(fixture, Network::On).await
}

async fn host_ports_stay_the_hosts(fixture: &Fixture, network: Network) -> anyhow::Result<()> {
    let Some(test_box) = networked(fixture, network).await? else {
        return Ok(());
    };
    let running = listening(&test_box).await?;
    for address in ["127.0.0.1:7777", "[::1]:7777"] {
        let answer = tokio::time::timeout(
            Duration::from_secs(2),
            tokio::net::TcpStream::connect(address),
        )
        .await;
        ensure!(
            !matches!(answer, Ok(Ok(_))),
            "a port of a box answers on the host's {address}"
        );
    }
    running.control.signal(9, Scope::Tree).await?;
    Ok(())
}

async fn cannot_listen_on_the_hosts_ports_when_off(fixture: &Fixture) -> anyhow::Result<()> {
    host_ports_stay_the_hosts(fixture, Network::Off).await
}

async fn cannot_listen_on_the_hosts_ports_when_on(fixture: &Fixture) -> anyhow::Result<()> {
    host_ports_stay_the_hosts(fixture, Network::On).await
}
