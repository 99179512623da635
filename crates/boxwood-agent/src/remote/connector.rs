//! The connection to a daemon in another process.
//!
//! The daemon is probed every 20 s and after a failed call. A lost daemon is connected again after 3 s, then 6 s and so
//! on up to a minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boxwood_client::{Client, Endpoint, Token};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::monitor::Monitor;
use super::{Remote, failure};
use crate::boxes::Answer;

/// Further probe requests wait until there is room.
const PROBE_REQUESTS: usize = 64;

/// How long `dispose` waits for running calls.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the daemon is not available, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub reason: String,
    pub fix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The first attempt has not succeeded or failed yet.
    Connecting,
    Available,
    Unavailable(Outage),
    /// Closed by [`Connector::dispose`].
    Disposed,
}

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// Counts connections.
    pub(super) generation: u64,
}

/// What the monitor publishes.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) availability: Availability,
    /// The current connection, or the last one.
    pub(super) connection: Connection,
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self {
            availability: Availability::Connecting,
            connection: Connection {
                client,
                generation: 0,
            },
        }
    }

    fn is_up(&self) -> bool {
        self.availability == Availability::Available
    }
}

/// Keeps a connection to a daemon. Cheap to clone; the connection is closed when the last clone is dropped.
#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    link: watch::Sender<Link>,
    probes: mpsc::Sender<oneshot::Sender<()>>,
    monitor: AbortHandle,
    /// Number of running calls.
    calls: watch::Sender<usize>,
    /// Set by `dispose`: new calls fail.
    closing: AtomicBool,
    shares_filesystem: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.monitor.abort();
    }
}

impl Connector {
    /// Starts to connect. Needs a Tokio runtime.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use boxwood_agent::{Agent, AgentSettings, Connector, NoProgress, runtime_endpoint};
    /// use boxwood_api::ToolCall;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let endpoint = runtime_endpoint("unix:///run/boxwood/boxwood.sock")?;
    /// let connector = Connector::remote(endpoint, None);
    /// let agent = Agent::new(Arc::new(connector.boxes()), AgentSettings::default());
    /// let call = ToolCall {
    ///     arguments: serde_json::from_str(r#"{"command": "echo $((6 * 7))"}"#)?,
    ///     ..ToolCall::default()
    /// };
    /// let answer = agent.call("exec", call, &NoProgress).await?;
    /// assert_eq!(answer.result["stdout"], "42\n");
    /// connector.dispose().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remote(endpoint: Endpoint, token: Option<Token>) -> Self {
        let client = Client::new(endpoint.clone(), token.clone());
        let link = watch::Sender::new(Link::new(client));
        let (probes, received) = mpsc::channel(PROBE_REQUESTS);
        let shares_filesystem = matches!(endpoint, Endpoint::Unix { .. });
        let monitor = Monitor {
            endpoint,
            token,
            link: link.clone(),
            probes: received,
        };
        Self(Arc::new(Inner {
            link,
            probes,
            monitor: tokio::spawn(monitor.run()).abort_handle(),
            calls: watch::Sender::new(0),
            closing: AtomicBool::new(false),
            shares_filesystem,
        }))
    }

    /// The boxes of the daemon.
    pub fn boxes(&self) -> Remote {
        Remote::new(self.clone())
    }

    /// Whether host paths have the same meaning for the daemon: it listens on a Unix socket of this machine.
    pub fn shares_filesystem(&self) -> bool {
        self.0.shares_filesystem
    }

    pub fn availability(&self) -> Availability {
        self.0.link.borrow().availability.clone()
    }

    /// Waits until the first attempt has succeeded or failed.
    pub async fn settled(&self) -> Availability {
        let settled = |link: &Link| link.availability != Availability::Connecting;
        self.wait_for(settled).await.availability
    }

    /// Number of connections so far.
    pub fn generation(&self) -> u64 {
        self.0.link.borrow().connection.generation
    }

    /// Waits for running calls, then disconnects. Calls that take longer fail.
    pub async fn dispose(&self) {
        self.0.closing.store(true, Ordering::Release);
        let mut calls = self.0.calls.subscribe();
        let _ = timeout(DRAIN_TIMEOUT, calls.wait_for(|calls| *calls == 0)).await;
        self.0.monitor.abort();
        let disposed = |link: &mut Link| link.availability = Availability::Disposed;
        self.0.link.send_modify(disposed);
    }

    /// Fails at once if the daemon is not available. The first attempt to connect is waited for.
    pub(super) async fn connection(&self, deadline: Instant) -> Answer<Connection> {
        if self.0.closing.load(Ordering::Acquire) {
            return Err(failure::disposed());
        }
        let _ = timeout_at(deadline, self.settled()).await;
        self.current()
    }

    /// The connection after one that failed. The same one if a probe shows that it still works.
    pub(super) async fn next_connection(&self, deadline: Instant) -> Answer<Connection> {
        let connected = async {
            self.probe().await;
            let is_final =
                |link: &Link| link.is_up() || link.availability == Availability::Disposed;
            self.wait_for(is_final).await;
        };
        let _ = timeout_at(deadline, connected).await;
        self.current()
    }

    fn current(&self) -> Answer<Connection> {
        let link = self.0.link.borrow().clone();
        match link.availability {
            Availability::Available => Ok(link.connection),
            Availability::Unavailable(outage) => Err(failure::down(outage)),
            Availability::Connecting => Err(failure::connecting()),
            Availability::Disposed => Err(failure::disposed()),
        }
    }

    /// Waits until this connection is known to be lost.
    pub(super) async fn broken(&self, generation: u64) {
        self.wait_for(|link| !link.is_up() || link.connection.generation != generation)
            .await;
    }

    /// Waits for a connection after this one.
    pub(super) async fn reconnected(&self, generation: u64) {
        self.wait_for(|link| link.is_up() && link.connection.generation != generation)
            .await;
    }

    async fn wait_for(&self, condition: impl FnMut(&Link) -> bool) -> Link {
        let mut link = self.0.link.subscribe();
        let link = link.wait_for(condition).await.map(|link| link.clone());
        match link {
            Ok(link) => link,
            // Impossible: `self` holds the sender.
            Err(_) => std::future::pending().await,
        }
    }

    /// Probes the daemon now, and waits until its availability is known.
    pub(super) async fn probe(&self) {
        let (done, is_done) = oneshot::channel();
        if self.0.probes.send(done).await.is_ok() {
            // The monitor drops the sender.
            let _ = is_done.await;
        }
    }

    /// Held during a call.
    pub(super) fn begin_call(&self) -> RunningCall {
        self.0.calls.send_modify(|calls| *calls += 1);
        RunningCall(Arc::clone(&self.0))
    }
}

pub(super) struct RunningCall(Arc<Inner>);

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.0.calls.send_modify(|calls| *calls -= 1);
    }
}
