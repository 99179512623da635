//! Fake hosting without boxes. Servers run in tasks behind pipes and start on demand.

mod pipe;
mod record;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerName};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::watch;

pub(super) use self::pipe::{Ends, Pipe, pipe};
pub(super) use self::record::ServerRecord;
use crate::gateway::server_registry::{
    DedicatedProcess, HostedServer, ServerRegistry, ServerState, ServerStatus,
};
use crate::gateway::{Gateway, GatewaySettings};
use crate::hosting::HostingError;
use crate::wire::{
    ClientIdentity, Connection, Handshake, InboundFilter, Protocol, ProtocolLog, WireLimits,
    discover, handshake,
};

const DEADLINE: Duration = Duration::from_secs(10);

/// A kind of little servers.
pub(super) trait Kind: Copy + Send + Sync + 'static {
    /// Maximum number of dedicated processes of one server.
    const MOST_OWN: usize;

    /// Starts the server's `main` process, its `modern` one or a dedicated one (`own`).
    fn start(self, server: &McpServerName, process: &'static str, record: &ServerRecord) -> Pipe;

    fn is_modern(self) -> bool;
}

pub(super) struct FakeServers<K> {
    servers: BTreeMap<McpServerName, Arc<Home<K>>>,
    changes: watch::Sender<u64>,
}

/// One server, between its runs.
pub(super) struct Home<K> {
    name: McpServerName,
    kind: K,
    record: ServerRecord,
    run: Mutex<Option<Arc<Run<K>>>>,
    children: Arc<AtomicUsize>,
    /// The server fails to start.
    pub(super) is_gone: AtomicBool,
    /// Starting a dedicated process never completes.
    pub(super) is_slow: AtomicBool,
    /// The modern process runs, but is not returned yet.
    pub(super) is_late: AtomicBool,
}

struct Run<K> {
    home: Arc<Home<K>>,
    connection: Connection,
    handshake: Arc<Handshake>,
    modern: tokio::sync::Mutex<Option<Connection>>,
}

pub(super) fn named(name: &str) -> McpServerName {
    McpServerName::new(name).expect("a legal name")
}

impl<K: Kind> FakeServers<K> {
    pub(super) fn of(servers: impl IntoIterator<Item = (McpServerName, K)>) -> Arc<Self> {
        let homes = servers.into_iter().map(|(name, kind)| {
            let home = Home {
                name: name.clone(),
                kind,
                record: ServerRecord::default(),
                run: Mutex::default(),
                children: Arc::default(),
                is_gone: AtomicBool::new(false),
                is_slow: AtomicBool::new(false),
                is_late: AtomicBool::new(false),
            };
            (name, Arc::new(home))
        });
        Arc::new(Self {
            servers: homes.collect(),
            changes: watch::channel(0).0,
        })
    }

    pub(super) fn gateway(self: &Arc<Self>) -> Gateway {
        self.gateway_with(GatewaySettings::default())
    }

    pub(super) fn gateway_with(self: &Arc<Self>, settings: GatewaySettings) -> Gateway {
        let registry: Arc<Self> = Arc::clone(self);
        Gateway::with_registry(registry, settings)
    }

    pub(super) fn home(&self, name: &str) -> &Arc<Home<K>> {
        &self.servers[&named(name)]
    }

    pub(super) fn record(&self, name: &str) -> &ServerRecord {
        &self.home(name).record
    }

    pub(super) fn children(&self, name: &str) -> usize {
        self.home(name).children.load(Ordering::SeqCst)
    }

    /// Stops the process. The argument decides whether it is restarted.
    pub(super) fn end(&self, name: &str, is_gone: bool) {
        let home = self.home(name);
        home.is_gone.store(is_gone, Ordering::SeqCst);
        let run = home.run.lock().expect("lock").take();
        if let Some(run) = run {
            run.connection.close();
        }
        self.changes.send_modify(|count| *count += 1);
    }
}

impl<K: Kind> Home<K> {
    fn running(&self) -> Option<Arc<Run<K>>> {
        let run = self.run.lock().expect("lock").clone();
        run.filter(|run| !run.connection.is_ended())
    }

    fn connect(&self, process: &'static str) -> Connection {
        let pipe = self.kind.start(&self.name, process, &self.record);
        let log = Arc::new(ProtocolLog::default());
        Connection::open(Box::new(pipe), WireLimits::default(), log)
    }
}

impl<K: Kind> ServerRegistry for FakeServers<K> {
    fn names(&self) -> Vec<McpServerName> {
        self.servers.keys().cloned().collect()
    }

    fn server<'a>(
        &'a self,
        name: &'a McpServerName,
    ) -> BoxFuture<'a, Result<Arc<dyn HostedServer>, HostingError>> {
        async move {
            let home = self
                .servers
                .get(name)
                .ok_or_else(|| HostingError::NotFound {
                    name: name.to_string(),
                })?;
            if home.is_gone.load(Ordering::SeqCst) {
                return Err(HostingError::Failed {
                    phase: McpPhase::McpInit,
                    message: "it said nothing".to_owned(),
                    hint: Some("look at its log".to_owned()),
                });
            }
            if let Some(run) = home.running() {
                return Ok(run as Arc<dyn HostedServer>);
            }
            let connection = home.connect("main");
            let handshake = handshake(&connection, &ClientIdentity::boxwood(), DEADLINE).await;
            let run = Arc::new(Run {
                home: Arc::clone(home),
                connection,
                handshake: Arc::new(handshake.expect("a handshake")),
                modern: tokio::sync::Mutex::default(),
            });
            *home.run.lock().expect("lock") = Some(Arc::clone(&run));
            self.changes.send_modify(|count| *count += 1);
            Ok(run as Arc<dyn HostedServer>)
        }
        .boxed()
    }

    fn connected(&self, name: &McpServerName) -> Option<Arc<dyn HostedServer>> {
        let run = self.servers.get(name)?.running()?;
        Some(run as Arc<dyn HostedServer>)
    }

    fn status(&self, name: &McpServerName) -> ServerStatus {
        let home = self.servers.get(name);
        let is_gone = home.is_none_or(|home| home.is_gone.load(Ordering::SeqCst));
        let state = match home.and_then(|home| home.running()) {
            Some(run) => ServerState::Connected(run.connection.id()),
            None if is_gone => ServerState::Unavailable,
            None => ServerState::Idle,
        };
        ServerStatus {
            state,
            defined_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

struct CountedChild(Arc<AtomicUsize>);

impl Drop for CountedChild {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<K: Kind> HostedServer for Run<K> {
    fn name(&self) -> &McpServerName {
        &self.home.name
    }

    fn allows_tool(&self, tool: &str) -> bool {
        tool != "secret"
    }

    fn allows_all_tools(&self) -> bool {
        false
    }

    fn handshake(&self) -> Arc<Handshake> {
        Arc::clone(&self.handshake)
    }

    fn main(&self) -> Connection {
        self.connection.clone()
    }

    fn modern(&self) -> BoxFuture<'_, Result<Option<Connection>, HostingError>> {
        async {
            if self.handshake.protocol == Protocol::Modern {
                return Ok(Some(self.connection.clone()));
            }
            if !self.home.kind.is_modern() {
                return Ok(None);
            }
            let mut modern = self.modern.lock().await;
            if modern.is_none() {
                let connection = self.home.connect("modern");
                let handshake = discover(&connection, &ClientIdentity::boxwood(), DEADLINE).await;
                while self.home.is_late.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                handshake.expect("a handshake");
                *modern = Some(connection);
            }
            Ok(modern.clone())
        }
        .boxed()
    }

    fn start_dedicated(
        &self,
        initialize: Box<RawValue>,
    ) -> BoxFuture<'_, Result<DedicatedProcess, HostingError>> {
        async move {
            if self.home.is_slow.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let children = &self.home.children;
            if children.load(Ordering::SeqCst) >= K::MOST_OWN {
                let message = "too many".to_owned();
                return Err(HostingError::Full { message });
            }
            children.fetch_add(1, Ordering::SeqCst);
            let counted = CountedChild(Arc::clone(children));
            let connection = self.home.connect("own");
            let inbound = connection.inbound(InboundFilter::All);
            let handshake =
                handshake(&connection, &ClientIdentity::client(initialize), DEADLINE).await;
            Ok(DedicatedProcess {
                connection,
                handshake: Arc::new(handshake.expect("a handshake")),
                inbound,
                _guard: Box::new(counted),
            })
        }
        .boxed()
    }
}
