//! Additional processes of a server in its box: one per client that supports server-initiated requests, and one for
//! clients of the modern protocol version.
//!
//! They are stopped when their client disconnects or after an idle time. Their number is limited.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerSpec, ProcessId, SessionId};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio_util::task::AbortOnDropHandle;

use super::handshake;
use crate::hosting::HostingError;
use crate::hosting::boxes::ids;
use crate::hosting::context::HostContext;
use crate::hosting::launch::Program;
use crate::hosting::logs::redact::Secrets;
use crate::hosting::logs::tail::tail_of_lines;
use crate::hosting::supervisor::deadline::StartClock;
use crate::hosting::supervisor::fault::Fault;
use crate::hosting::supervisor::health;
use crate::hosting::supervisor::health::Watched;
use crate::hosting::supervisor::state::ServerState;
use crate::hosting::supervisor::state::end_of_line;
use crate::wire;
use crate::wire::{
    ClientIdentity, Connection, Handshake, Inbound, InboundFilter, Protocol, ProtocolLog,
    WireLimits,
};

/// Legacy servers often do not answer `server/discover` at all.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(20);

/// The processes of one run of a server besides its main process.
pub(crate) struct ChildProcesses {
    context: Arc<HostContext>,
    session: SessionId,
    spec: Arc<McpServerSpec>,
    launched: Program,
    protocol: Arc<ProtocolLog>,
    secrets: Arc<Secrets>,
    next: AtomicU64,
    children: Mutex<Children>,
    modern: tokio::sync::Mutex<Modern>,
}

#[derive(Default)]
struct Children {
    /// The connection is `None` while the process starts.
    running: BTreeMap<ProcessId, Option<Connection>>,
    is_closed: bool,
    /// Stderr of ended processes.
    stderr: String,
}

impl Children {
    fn keep_stderr(&mut self, process: &ProcessId, text: &str) {
        self.stderr.push_str(&stderr_section(process, text));
        let length = tail_of_lines(&self.stderr, MAX_ENDED_BYTES).len();
        self.stderr.drain(..self.stderr.len() - length);
    }
}

/// The process for modern clients.
enum Modern {
    NotStarted,
    /// Discovery failed or timed out; the main process serves modern clients.
    Unsupported,
    Running {
        connection: Connection,
        handshake: Arc<Handshake>,
        _watched: AbortOnDropHandle<()>,
    },
}

/// The process of one client. Dropping this stops it.
pub(crate) struct ClientProcess {
    pub(crate) connection: Connection,
    pub(crate) handshake: Arc<Handshake>,
    /// All messages since before the handshake.
    pub(crate) inbound: Inbound,
    watched: AbortOnDropHandle<()>,
    slot: Slot,
}

impl ClientProcess {
    /// Dropping the last of the returned values stops the process.
    pub(crate) fn into_parts(self) -> (Connection, Arc<Handshake>, Inbound, Box<dyn Send + Sync>) {
        (
            self.connection,
            self.handshake,
            self.inbound,
            Box::new((self.watched, self.slot)),
        )
    }
}

/// Reserves a process id, and stops the process on drop.
struct Slot {
    children: Arc<ChildProcesses>,
    process: ProcessId,
    is_kept: bool,
}

impl Slot {
    /// The process keeps running.
    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_kept {
            self.children.end(&self.process);
        }
    }
}

impl ChildProcesses {
    pub(crate) fn new(
        context: &Arc<HostContext>,
        state: &ServerState,
        spec: &Arc<McpServerSpec>,
        launched: Program,
    ) -> Arc<Self> {
        // Processes of an earlier daemon have smaller numbers.
        let first = Timestamp::now().as_millisecond().unsigned_abs();
        Arc::new(Self {
            context: Arc::clone(context),
            session: state.session.clone(),
            spec: Arc::clone(spec),
            launched,
            protocol: Arc::clone(&state.protocol),
            secrets: state.secrets(),
            next: AtomicU64::new(first),
            children: Mutex::default(),
            modern: tokio::sync::Mutex::new(Modern::NotStarted),
        })
    }

    /// Starts a process for one client and performs the handshake with its parameters.
    pub(crate) async fn client_process(
        self: &Arc<Self>,
        initialize_params: Box<RawValue>,
    ) -> Result<ClientProcess, HostingError> {
        let slot = self.slot(ids::client_process)?;
        let clock = StartClock::start(self.spec.settings.startup_timeout_sec);
        let opened = async {
            let connection = self.launch(&slot, &clock).await?;
            let inbound = connection.inbound(InboundFilter::All);
            let client = ClientIdentity::client(initialize_params);
            let handshake = handshake::handshake(&connection, &client, &clock).await?;
            Ok((connection, inbound, handshake))
        };
        let (connection, inbound, handshake) = match opened.await {
            Ok(opened) => opened,
            Err(fault) => {
                let (context, session) = (&self.context, &self.session);
                let fault = handshake::with_stderr(context, session, &slot.process, fault).await;
                return Err(fault.redacted(&self.secrets).into());
            }
        };
        Ok(ClientProcess {
            watched: self.watch(&connection, handshake.protocol),
            connection,
            handshake: Arc::new(handshake),
            inbound,
            slot,
        })
    }

    /// The process for modern clients, which is started if necessary. `None` if the server supports only legacy
    /// protocol versions.
    pub(crate) async fn modern(
        self: &Arc<Self>,
    ) -> Result<Option<(Connection, Arc<Handshake>)>, HostingError> {
        // The lock is held for at most the startup timeout.
        let mut modern = self.modern.lock().await;
        match &*modern {
            Modern::Unsupported => return Ok(None),
            Modern::Running {
                connection,
                handshake,
                ..
            } if !connection.is_ended() => {
                return Ok(Some((connection.clone(), Arc::clone(handshake))));
            }
            Modern::Running { .. } | Modern::NotStarted => {}
        }
        let slot = self.slot(ids::modern_process)?;
        let clock = StartClock::start(self.spec.settings.startup_timeout_sec);
        let connection = match self.launch(&slot, &clock).await {
            Ok(connection) => connection,
            Err(fault) => {
                let (session, error) = (&self.session, fault.redacted(&self.secrets).message);
                tracing::info!(%session, error, "failed to start the process for the modern protocol version");
                *modern = Modern::Unsupported;
                return Ok(None);
            }
        };
        let timeout = DISCOVER_TIMEOUT.min(clock.remaining());
        let discovered = wire::discover(&connection, &ClientIdentity::boxwood(), timeout).await;
        let Ok(handshake) = discovered else {
            *modern = Modern::Unsupported;
            return Ok(None);
        };
        slot.keep();
        let handshake = Arc::new(handshake);
        *modern = Modern::Running {
            connection: connection.clone(),
            handshake: Arc::clone(&handshake),
            _watched: self.watch(&connection, Protocol::Modern),
        };
        Ok(Some((connection, handshake)))
    }

    /// The shortest idle time of all children. `None` without children.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let children = self.lock();
        let connections = children.running.values().map(Option::as_ref);
        connections
            .map(|child| child.map_or(Duration::ZERO, Connection::idle_for))
            .min()
    }

    /// Stops idle children for as long as it is polled.
    pub(crate) async fn stop_idle(self: &Arc<Self>) -> Infallible {
        let limit = self.context.settings.idle_child;
        loop {
            tokio::time::sleep((limit / 4).max(Duration::from_millis(50))).await;
            for process in self.idle_longer_than(limit) {
                self.end(&process);
            }
        }
    }

    /// Closes all connections before the box is removed.
    pub(crate) fn close(&self) {
        let mut children = self.lock();
        children.is_closed = true;
        children
            .running
            .values()
            .flatten()
            .for_each(Connection::close);
    }

    /// Stops all processes except the main one when the daemon shuts down. The box keeps running.
    pub(crate) fn detach(&self) {
        let mut children = self.lock();
        let started = children.running.extract_if(.., |_, child| child.is_some());
        let started: Vec<_> = started.collect();
        // Processes that are still starting are stopped when their start is dropped.
        children.is_closed = true;
        drop(children);
        for (process, child) in started {
            child.iter().for_each(Connection::close);
            self.stop_later(process);
        }
    }

    /// Stops processes that belonged to clients of an earlier daemon.
    pub(crate) fn stop_leftover(&self, processes: Vec<ProcessId>) {
        for process in processes {
            self.stop_later(process);
        }
    }

    /// Stderr of current and ended children, each with a heading.
    pub(crate) async fn stderr(&self) -> String {
        let (processes, ended) = {
            let children = self.lock();
            let processes: Vec<_> = children.running.keys().cloned().collect();
            (processes, children.stderr.clone())
        };
        let (context, session, secrets) = (&self.context, &self.session, &self.secrets);
        let stderr = processes.iter().map(async |process| {
            let text = handshake::stderr(context, session, process, secrets).await;
            stderr_section(process, &text.unwrap_or_default())
        });
        let stderr = join_all(stderr).await.concat();
        format!("{ended}{stderr}")
    }

    async fn launch(&self, slot: &Slot, clock: &StartClock) -> Result<Connection, Fault> {
        let process = self.launched.process(slot.process.clone(), &self.spec);
        let starting = self.context.runtime.start(&self.session, process);
        clock.call(McpPhase::ProcessStart, starting).await?;
        let wire = handshake::attach(&self.context, &self.session, &slot.process, clock).await?;
        let log = Arc::clone(&self.protocol);
        let connection = Connection::open(wire, WireLimits::default(), log);
        let mut children = self.lock();
        if children.is_closed {
            connection.close();
        } else if let Some(running) = children.running.get_mut(&slot.process) {
            *running = Some(connection.clone());
        }
        drop(children);
        Ok(connection)
    }

    fn slot(self: &Arc<Self>, id: fn(u64) -> ProcessId) -> Result<Slot, HostingError> {
        let limit = self.context.settings.max_children;
        let mut children = self.lock();
        if children.is_closed {
            return Err(HostingError::Failed {
                phase: McpPhase::Runtime,
                message: "the server was stopped".to_owned(),
                hint: None,
            });
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let process = id(number);
        let of_clients = children.running.keys().filter(|it| ids::is_of_client(it));
        if ids::is_of_client(&process) && of_clients.count() >= limit {
            let message =
                format!("{limit} clients have a process of this server (`mcp.max_children`)");
            return Err(HostingError::Full { message });
        }
        children.running.insert(process.clone(), None);
        Ok(Slot {
            children: Arc::clone(self),
            process,
            is_kept: false,
        })
    }

    fn idle_longer_than(&self, limit: Duration) -> Vec<ProcessId> {
        let children = self.lock();
        let is_idle = |child: &Connection| child.is_ended() || child.unused_for() >= limit;
        children
            .running
            .iter()
            .filter(|(_, child)| child.as_ref().is_some_and(is_idle))
            .map(|(process, _)| process.clone())
            .collect()
    }

    /// Only the first call stops the process.
    fn end(self: &Arc<Self>, process: &ProcessId) {
        let Some((process, connection)) = self.lock().running.remove_entry(process) else {
            return;
        };
        if let Some(connection) = connection {
            connection.close();
        }
        // Also after `close`, because the box may still exist.
        let this = Arc::clone(self);
        self.context.spawn(async move {
            let (context, session) = (&this.context, &this.session);
            // Keep the output for `logs`.
            let text = handshake::stderr(context, session, &process, &this.secrets).await;
            this.lock().keep_stderr(&process, &text.unwrap_or_default());
            stop(context, session, &process).await;
        });
    }

    fn stop_later(&self, process: ProcessId) {
        let (context, session) = (Arc::clone(&self.context), self.session.clone());
        self.context
            .spawn(async move { stop(&context, &session, &process).await });
    }

    /// Closes the connection of a hung process. The next call starts another.
    fn watch(&self, connection: &Connection, protocol: Protocol) -> AbortOnDropHandle<()> {
        let (context, session) = (Arc::clone(&self.context), self.session.clone());
        let connection = connection.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let watched = Watched {
                connection: &connection,
                protocol,
                has_answered: true,
            };
            let fault = health::until_hung(watched, &context.settings).await;
            let error = &fault.message;
            tracing::warn!(%session, error, "closing the connection of a hung child process");
            connection.close();
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn stop(context: &HostContext, session: &SessionId, process: &ProcessId) {
    let stopped =
        context.with_timeout("stopping a process", context.runtime.stop(session, process));
    if let Err(error) = stopped.await {
        tracing::warn!(%session, %process, %error, "failed to stop a process");
    }
}

/// Limit per process.
const MAX_SECTION_BYTES: usize = 64 * 1024;
/// Limit for all ended processes.
const MAX_ENDED_BYTES: usize = 64 * 1024;

/// Empty if the process wrote nothing.
fn stderr_section(process: &ProcessId, text: &str) -> String {
    let text = tail_of_lines(text, MAX_SECTION_BYTES);
    if text.is_empty() {
        return String::new();
    }
    format!("--- {process} ---\n{text}{}", end_of_line(text))
}
