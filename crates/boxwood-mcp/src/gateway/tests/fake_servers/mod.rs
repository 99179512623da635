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

/// How the processes of a fake server start.
pub(super) trait Kind: Copy + Send + Sync + 'static {
    /// Maximum number of dedicated processes of one server.
    const MAX_DEDICATED: usize;

    /// Starts the server's `main` process, its `modern` one or a dedicated one (`own`).
    fn start(self, server: &McpServerName, process: &'static str, record: &ServerRecord) -> Pipe;

    fn is_modern(self) -> bool;
}

pub(super) struct FakeServers<K> {
    servers: BTreeMap<McpServerName, Arc<FakeServer<K>>>,
    changes: watch::Sender<u64>,
}

/// One server, between its runs.
pub(super) struct FakeServer<K> {
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
    server: Arc<FakeServer<K>>,
    connection: Connection,
    handshake: Arc<Handshake>,
    modern: tokio::sync::Mutex<Option<Connection>>,
}

pub(super) fn named(name: &str) -> McpServerName {
    McpServerName::new(name).expect("a legal name")
}

impl<K: Kind> FakeServers<K> {
    pub(super) fn of(servers: impl IntoIterator<Item = (McpServerName, K)>) -> Arc<Self> {
        let fake_servers = servers.into_iter().map(|(name, kind)| {
            let server = FakeServer {
                name: name.clone(),
                kind,
                record: ServerRecord::default(),
                run: Mutex::default(),
                children: Arc::default(),
                is_gone: AtomicBool::new(false),
                is_slow: AtomicBool::new(false),
                is_late: AtomicBool::new(false),
            };
            (name, Arc::new(server))
        });
        Arc::new(Self {
            servers: fake_servers.collect(),
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

    pub(super) fn fake_server(&self, name: &str) -> &Arc<FakeServer<K>> {
        &self.servers[&named(name)]
    }

    pub(super) fn record(&self, name: &str) -> &ServerRecord {
        &self.fake_server(name).record
    }

    pub(super) fn children(&self, name: &str) -> usize {
        self.fake_server(name).children.load(Ordering::SeqCst)
    }

    /// Stops the process. The argument decides whether it is restarted.
    pub(super) fn end(&self, name: &str, is_gone: bool) {
        let server = self.fake_server(name);
        server.is_gone.store(is_gone, Ordering::SeqCst);
        let run = server.run.lock().expect("lock").take();
        if let Some(run) = run {
            run.connection.close();
        }
        self.changes.send_modify(|count| *count += 1);
    }
}

impl<K: Kind> FakeServer<K> {
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
            let server = self
                .servers
                .get(name)
                .ok_or_else(|| HostingError::NotFound {
                    name: name.to_string(),
                })?;
            if server.is_gone.load(Ordering::SeqCst) {
                return Err(HostingError::Failed {
                    phase: McpPhase::McpInit,
                    message: "no response".to_owned(),
                    hint: Some("look at its log".to_owned()),
                });
            }
            if let Some(run) = server.running() {
                return Ok(run as Arc<dyn HostedServer>);
            }
            let connection = server.connect("main");
            let handshake = handshake(&connection, &ClientIdentity::boxwood(), DEADLINE).await;
            let run = Arc::new(Run {
                server: Arc::clone(server),
                connection,
                handshake: Arc::new(handshake.expect("a handshake")),
                modern: tokio::sync::Mutex::default(),
            });
            *server.run.lock().expect("lock") = Some(Arc::clone(&run));
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
        let server = self.servers.get(name);
        let is_gone = server.is_none_or(|server| server.is_gone.load(Ordering::SeqCst));
        let state = match server.and_then(|server| server.running()) {
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
        &self.server.name
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
            if !self.server.kind.is_modern() {
                return Ok(None);
            }
            let mut modern = self.modern.lock().await;
            if modern.is_none() {
                let connection = self.server.connect("modern");
                let handshake = discover(&connection, &ClientIdentity::boxwood(), DEADLINE).await;
                while self.server.is_late.load(Ordering::SeqCst) {
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
            if self.server.is_slow.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let children = &self.server.children;
            if children.load(Ordering::SeqCst) >= K::MAX_DEDICATED {
                let message = "too many".to_owned();
                return Err(HostingError::Full { message });
            }
            children.fetch_add(1, Ordering::SeqCst);
            let counted = CountedChild(Arc::clone(children));
            let connection = self.server.connect("own");
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
