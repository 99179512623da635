//! The host's side of a case: processes and listeners that a box must not reach, and checks for leftovers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::net::{TcpListener, UdpSocket};
use tokio::process::{Child, Command};

/// Exists only if the kernel was built with it.
const CONNECTIONS: &str = "/proc/net/nf_conntrack";

/// A process of the host with a unique marker in its command line.
pub(crate) struct HostProcess {
    child: Child,
    pub(crate) pid: u32,
}

impl HostProcess {
    pub(crate) fn start(marker: &str) -> anyhow::Result<Self> {
        let child = Command::new("/bin/sh")
            .args(["-c", "while :; do sleep 1; done", marker])
            // Its `sleep` outlives it for a moment and must not keep the test's output open.
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting a process on the host")?;
        let pid = child.id().context("the process on the host has no id")?;
        Ok(Self { child, pid })
    }

    pub(crate) fn is_untouched(&mut self) -> anyhow::Result<()> {
        ensure!(
            self.child.try_wait()?.is_none(),
            "the host's process was killed from inside a box"
        );
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let state = status.lines().find(|line| line.starts_with("State:"));
        ensure!(
            state.is_some_and(|state| !state.contains("T (")),
            "the host's process was stopped from inside a box: {state:?}"
        );
        Ok(())
    }
}

/// Host pids whose command line contains `marker`.
pub(crate) fn host_pids_with(marker: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| *pid != std::process::id())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(marker)
        })
        .collect()
}

/// Waits until the host sees `count` processes with the marker.
pub(crate) async fn wait_for_processes(marker: &str, count: usize) -> anyhow::Result<Vec<u32>> {
    for _ in 0..300 {
        let pids = host_pids_with(marker);
        if pids.len() >= count {
            return Ok(pids);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!(
        "the host sees {} of {count} processes of the box",
        host_pids_with(marker).len()
    )
}

/// Waits until no process of the host carries the marker any more.
pub(crate) async fn wait_until_gone(marker: &str) -> anyhow::Result<()> {
    for _ in 0..100 {
        if host_pids_with(marker).is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("left behind on the host: {:?}", host_pids_with(marker))
}

/// A marker that no other test, run or process has.
pub(crate) fn marker(prefix: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    format!("{prefix}-{}-{nanos}-{nth}", std::process::id())
}

/// Listeners on the host, and what arrived at them.
pub(crate) struct Listeners {
    pub(crate) loopback_port: u16,
    pub(crate) any_port: u16,
    pub(crate) udp_port: u16,
    pub(crate) abstract_name: String,
    arrivals: Arrivals,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// One line per connection or datagram: where it arrived, and from whom.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<String>>>);

impl Arrivals {
    fn record(&self, arrival: String) {
        self.lock().push(arrival);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listeners {
    /// TCP on loopback and on every address, UDP on every address, an abstract Unix socket.
    pub(crate) async fn open() -> anyhow::Result<Self> {
        let loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        // `::` accepts IPv4 as well. Hosts without IPv6 only have IPv4.
        let any = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
            Ok(any) => any,
            Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
        };
        let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let abstract_name = marker("boxwood-suite");
        let address = UnixAddr::from_abstract_name(&abstract_name)?;
        let unix = UnixListener::bind_addr(&address)?;
        unix.set_nonblocking(true)?;
        let unix = tokio::net::UnixListener::from_std(unix)?;

        let arrivals = Arrivals::default();
        let mut listeners = Self {
            loopback_port: loopback.local_addr()?.port(),
            any_port: any.local_addr()?.port(),
            udp_port: udp.local_addr()?.port(),
            abstract_name,
            arrivals: arrivals.clone(),
            tasks: Vec::new(),
        };
        for listener in [loopback, any] {
            let arrivals = arrivals.clone();
            listeners.tasks.push(tokio::spawn(async move {
                while let Ok((stream, peer)) = listener.accept().await {
                    let local = stream.local_addr().map_err(|error| error.kind());
                    arrivals.record(format!("TCP to {local:?} from {peer}"));
                }
            }));
        }
        let (datagrams, connections) = (arrivals.clone(), arrivals);
        let udp_port = listeners.udp_port;
        listeners.tasks.push(tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok((_, peer)) = udp.recv_from(&mut buffer).await {
                datagrams.record(format!("UDP to port {udp_port} from {peer}"));
            }
        }));
        listeners.tasks.push(tokio::spawn(async move {
            while let Ok((stream, _)) = unix.accept().await {
                let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
                connections.record(format!("abstract socket from pid {peer:?}"));
            }
        }));
        listeners.check_from_host().await?;
        Ok(listeners)
    }

    /// Checks that the listeners work: the host can connect to them. Its own connections are not recorded.
    async fn check_from_host(&self) -> anyhow::Result<()> {
        for port in [self.loopback_port, self.any_port] {
            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .await
                .context("the host cannot reach its own listener")?;
        }
        for _ in 0..100 {
            if self.arrivals().len() >= 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let arrivals = self.arrivals();
        ensure!(
            arrivals.len() == 2,
            "expected two connections of the host: {arrivals:?}"
        );
        self.arrivals.lock().clear();
        Ok(())
    }

    pub(crate) fn arrivals(&self) -> Vec<String> {
        self.arrivals.lock().clone()
    }

    /// Checks the outcome of an attack on these listeners. It fails if a probe succeeded or something arrived; the
    /// error then contains the state of the host's network.
    pub(crate) async fn check_no_arrivals<T>(
        &self,
        attacked: anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if attacked.is_err() {
            // A new connection may not be accepted yet.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let arrivals = self.arrivals();
        if arrivals.is_empty() && attacked.is_ok() {
            return attacked;
        }
        let summary = match attacked {
            Ok(_) => "every probe was refused".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        bail!(
            "{summary}\n{} arrivals at the host's listeners: {arrivals:#?}\n{}",
            arrivals.len(),
            network_state().await
        )
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The host's packet filter, addresses and tracked connections, for a failure's message.
async fn network_state() -> String {
    let mut parts = Vec::new();
    for command in [&["nft", "list", "ruleset"][..], &["ip", "addr"]] {
        let output = Command::new(command[0]).args(&command[1..]).output().await;
        let text = match output {
            Ok(output) => [output.stdout, output.stderr].concat(),
            Err(error) => error.to_string().into_bytes(),
        };
        let text = String::from_utf8_lossy(&text);
        parts.push(format!("--- {}\n{text}", command.join(" ")));
    }
    let connections =
        std::fs::read_to_string(CONNECTIONS).unwrap_or_else(|error| error.to_string());
    parts.push(format!("--- {CONNECTIONS}\n{connections}"));
    parts.join("\n")
}

/// Every address the host answers on, loopback included.
pub(crate) fn host_addresses() -> anyhow::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    let trie = std::fs::read_to_string("/proc/net/fib_trie")?;
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            addresses.extend(last.take().map(IpAddr::V4));
        }
    }
    for line in std::fs::read_to_string("/proc/net/if_inet6")
        .unwrap_or_default()
        .lines()
    {
        let digits = line.split_whitespace().next().unwrap_or_default();
        if let Ok(number) = u128::from_str_radix(digits, 16) {
            addresses.push(IpAddr::V6(Ipv6Addr::from(number)));
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    ensure!(
        !addresses.is_empty(),
        "the host's own addresses are unknown"
    );
    Ok(addresses)
}
