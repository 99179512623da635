//! Further processes of a server, in the same box: one for each client that can be asked something, and
//! one for clients of the modern protocol.
//!
//! Comes in: the command of the main process. Goes out: connections to processes that end when their
//! client does, or when nobody spoke to them for long. Their number is bounded.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerSpec, ProcessId, SessionId};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::HostingError;
use super::clock::StartClock;
use super::fault::Fault;
use super::greeting;
use super::health::{self, Watched};
use super::hosted::Hosted;
use super::kit::Kit;
use super::last_words::{self, LastWords};
use super::naming;
use super::redact::Secrets;
use super::run_record::Launched;
use crate::wire::{
    self, Connection, Era, GreetAs, GreetError, Greeting, Hears, Inbound, ProtocolLog, WireLimits,
};

/// A server that says nothing at all to `server/discover` mostly does not know it.
const TO_DISCOVER: Duration = Duration::from_secs(20);
/// It may also have been slow. It is asked again, later and later, before that is settled.
const MOST_DOUBTS: u32 = 3;
const FIRST_DOUBT: Duration = Duration::from_mins(1);

pub(crate) struct Children {
    kit: Arc<Kit>,
    session: SessionId,
    spec: Arc<McpServerSpec>,
    launched: Launched,
    protocol: Arc<ProtocolLog>,
    secrets: Arc<Secrets>,
    next: AtomicU64,
    own: Mutex<Own>,
    words: Arc<LastWords>,
    modern: tokio::sync::Mutex<Modern>,
}

#[derive(Default)]
struct Own {
    /// None while it starts.
    running: HashMap<u64, Option<Connection>>,
    is_closed: bool,
}

enum Modern {
    /// Nobody has asked yet, or it was stopped since.
    Asleep,
    /// It could not be asked, or did not answer, so many times.
    Doubtful {
        times: u32,
        again_at: Instant,
    },
    Unknown,
    Running {
        connection: Connection,
        greeting: Arc<Greeting>,
        _watched: AbortOnDropHandle<()>,
    },
}

impl Modern {
    fn doubt(&self) -> Self {
        let times = match self {
            Self::Doubtful { times, .. } => times + 1,
            _ => 1,
        };
        if times >= MOST_DOUBTS {
            return Self::Unknown;
        }
        let again_at = Instant::now() + FIRST_DOUBT * 2_u32.pow(times - 1);
        Self::Doubtful { times, again_at }
    }
}

/// One client's process. Dropping it stops the process.
pub(crate) struct OwnChild {
    pub(crate) connection: Connection,
    pub(crate) greeting: Arc<Greeting>,
    /// Everything it said since before it was greeted.
    pub(crate) inbound: Inbound,
    watched: AbortOnDropHandle<()>,
    slot: Slot,
}

impl OwnChild {
    /// The process stops when the last part is dropped.
    pub(crate) fn into_parts(self) -> (Connection, Arc<Greeting>, Inbound, Box<dyn Send + Sync>) {
        (
            self.connection,
            self.greeting,
            self.inbound,
            Box::new((self.watched, self.slot)),
        )
    }
}

/// A place among the children, and the process in it.
struct Slot {
    children: Arc<Children>,
    number: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.children.end(self.number);
    }
}

impl Children {
    pub(crate) fn new(
        kit: &Arc<Kit>,
        hosted: &Hosted,
        spec: &Arc<McpServerSpec>,
        launched: Launched,
    ) -> Arc<Self> {
        // A process of an earlier daemon may have had any smaller number.
        let first = Timestamp::now().as_millisecond().unsigned_abs();
        Arc::new(Self {
            kit: Arc::clone(kit),
            session: hosted.session.clone(),
            spec: Arc::clone(spec),
            launched,
            protocol: Arc::clone(&hosted.protocol),
            secrets: hosted.secrets(),
            next: AtomicU64::new(first),
            own: Mutex::default(),
            words: Arc::default(),
            modern: tokio::sync::Mutex::new(Modern::Asleep),
        })
    }

    pub(crate) async fn own(
        self: &Arc<Self>,
        initialize_params: Box<RawValue>,
    ) -> Result<OwnChild, HostingError> {
        let slot = self.slot()?;
        let clock = StartClock::start(self.spec.settings.startup_timeout_sec);
        let process = naming::own_process(slot.number);
        let greeted = async {
            let connection = self.launch(process.clone(), &clock).await?;
            self.seat(slot.number, &connection);
            let inbound = connection.inbound(Hears::Everything);
            let client = GreetAs::client(initialize_params);
            let greeting = greeting::greet(&connection, &client, &clock).await?;
            Ok((connection, inbound, greeting))
        };
        let (connection, inbound, greeting) = match greeted.await {
            Ok(greeted) => greeted,
            Err(fault) => {
                let (kit, session) = (&self.kit, &self.session);
                let fault = greeting::with_stderr_of(&process, kit, session, fault).await;
                return Err(fault.redacted(&self.secrets).into());
            }
        };
        let watching = watch(
            connection.clone(),
            greeting.era,
            Arc::clone(&self.kit),
            self.session.clone(),
        );
        Ok(OwnChild {
            connection,
            greeting: Arc::new(greeting),
            inbound,
            watched: AbortOnDropHandle::new(tokio::spawn(watching)),
            slot,
        })
    }

    /// None where the server only knows the old way.
    pub(crate) async fn modern(
        self: &Arc<Self>,
    ) -> Result<Option<(Connection, Arc<Greeting>)>, HostingError> {
        // Whoever holds it is bounded by the startup timeout.
        let mut modern = self.modern.lock().await;
        match &*modern {
            Modern::Unknown => return Ok(None),
            Modern::Running {
                connection,
                greeting,
                ..
            } if !connection.is_ended() => {
                return Ok(Some((connection.clone(), Arc::clone(greeting))));
            }
            Modern::Doubtful { again_at, .. } if Instant::now() < *again_at => return Ok(None),
            Modern::Running { .. } | Modern::Doubtful { .. } | Modern::Asleep => {}
        }
        let process = naming::modern_process();
        // Whatever has the name now is over, and a start that is dropped half-way is cleared away.
        self.stop(&process).await;
        if matches!(&*modern, Modern::Running { .. }) {
            *modern = Modern::Asleep;
        }
        let guard = StopLater {
            children: self,
            process: Some(process.clone()),
        };
        let clock = StartClock::start(self.spec.settings.startup_timeout_sec);
        // Its clients can still be served by the main process.
        let connection = match self.launch(process, &clock).await {
            Ok(connection) => connection,
            Err(fault) => {
                let (session, message) = (&self.session, fault.redacted(&self.secrets).message);
                tracing::info!(%session, message, "a process for modern clients did not start");
                *modern = modern.doubt();
                return Ok(None);
            }
        };
        let within = TO_DISCOVER.min(clock.left());
        let greeting = match wire::discover(&connection, &GreetAs::boxwood(), within).await {
            Ok(greeting) => greeting,
            Err(GreetError::Call(_)) => {
                *modern = modern.doubt();
                return Ok(None);
            }
            Err(GreetError::Refused { .. } | GreetError::Unreadable { .. }) => {
                *modern = Modern::Unknown;
                return Ok(None);
            }
        };
        guard.keep();
        let greeting = Arc::new(greeting);
        let watching = watch(
            connection.clone(),
            Era::Modern,
            Arc::clone(&self.kit),
            self.session.clone(),
        );
        *modern = Modern::Running {
            connection: connection.clone(),
            greeting: Arc::clone(&greeting),
            _watched: AbortOnDropHandle::new(tokio::spawn(watching)),
        };
        Ok(Some((connection, greeting)))
    }

    /// The shortest time for which one of them was not spoken to; none when there are no children.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let own = self.lock();
        let connections = own.running.values();
        let own = connections
            .map(|child| child.as_ref().map_or(Duration::ZERO, Connection::idle_for))
            .min();
        let modern = match self.modern.try_lock() {
            Ok(modern) => match &*modern {
                Modern::Running { connection, .. } => Some(connection.idle_for()),
                Modern::Asleep | Modern::Doubtful { .. } | Modern::Unknown => None,
            },
            // It is being started.
            Err(_) => Some(Duration::ZERO),
        };
        [own, modern].into_iter().flatten().min()
    }

    /// Ends children that nobody speaks to, for as long as it is polled.
    pub(crate) async fn mind(&self) -> Infallible {
        let limit = self.kit.settings.idle_child;
        loop {
            tokio::time::sleep((limit / 4).max(Duration::from_millis(50))).await;
            for number in self.idle_longer_than(limit) {
                self.end(number);
            }
            let Ok(mut modern) = self.modern.try_lock() else {
                continue;
            };
            let is_idle = matches!(&*modern, Modern::Running { connection, .. }
                if connection.is_ended() || connection.idle_for() >= limit);
            if is_idle {
                if let Modern::Running { connection, .. } = &*modern {
                    connection.close();
                }
                *modern = Modern::Asleep;
                self.stop(&naming::modern_process()).await;
            }
        }
    }

    /// The box goes, and they with it.
    pub(crate) fn close(&self) {
        let mut own = self.lock();
        own.is_closed = true;
        for connection in own.running.values().flatten() {
            connection.close();
        }
        drop(own);
        if let Ok(modern) = self.modern.try_lock()
            && let Modern::Running { connection, .. } = &*modern
        {
            connection.close();
        }
    }

    /// The daemon ends, and the box goes on. What nobody can use afterwards is stopped now.
    pub(crate) fn leave(&self) {
        let mut own = self.lock();
        let started = own.running.extract_if(|_, child| child.is_some());
        let started: Vec<_> = started.collect();
        // Those that are being started stop when they are given up.
        own.is_closed = true;
        drop(own);
        for (number, child) in started {
            child.iter().for_each(Connection::close);
            self.stop_later(naming::own_process(number));
        }
        let has_modern = self
            .modern
            .try_lock()
            .map_or(true, |modern| matches!(&*modern, Modern::Running { .. }));
        if has_modern {
            self.stop_later(naming::modern_process());
        }
    }

    /// Processes of clients that an earlier daemon had.
    pub(crate) fn end_left(self: &Arc<Self>, left: Vec<ProcessId>) {
        for process in left {
            if process != naming::modern_process() {
                self.stop_later(process);
                continue;
            }
            let children = Arc::clone(self);
            self.kit.later(async move {
                // Only while nobody has started another of that name.
                let modern = children.modern.lock().await;
                if matches!(&*modern, Modern::Asleep) {
                    children.stop(&process).await;
                }
            });
        }
    }

    /// What they wrote to stderr, and those before them, each behind a line that names it.
    pub(crate) async fn stderr(&self) -> String {
        let mut processes: Vec<_> = {
            let own = self.lock();
            let mut numbers: Vec<_> = own.running.keys().copied().collect();
            numbers.sort_unstable();
            numbers.into_iter().map(naming::own_process).collect()
        };
        processes.push(naming::modern_process());
        let (kit, session, secrets) = (&self.kit, &self.session, &self.secrets);
        let said = processes.iter().map(async |process| {
            let text = greeting::stderr_of(process, kit, session, secrets).await;
            last_words::shown(process, &text.unwrap_or_default())
        });
        let said = join_all(said).await.concat();
        format!("{}{said}", self.words.text())
    }

    async fn launch(&self, id: ProcessId, clock: &StartClock) -> Result<Connection, Fault> {
        let runtime = &self.kit.runtime;
        let of_start = |error| Fault::of_runtime(McpPhase::ProcessStart, error);
        let process = self.launched.process(id.clone(), &self.spec);
        clock
            .within(
                McpPhase::ProcessStart,
                runtime.start(&self.session, process),
            )
            .await?
            .map_err(of_start)?;
        let wire = greeting::take_hold(&self.kit, &self.session, &id, clock).await?;
        let log = Arc::clone(&self.protocol);
        Ok(Connection::open(wire, WireLimits::default(), log))
    }

    fn slot(self: &Arc<Self>) -> Result<Slot, HostingError> {
        let most = self.kit.settings.max_children;
        let mut own = self.lock();
        if own.is_closed {
            return Err(HostingError::Failed {
                phase: McpPhase::Runtime,
                message: "the server was stopped".to_owned(),
                hint: None,
            });
        }
        if own.running.len() >= most {
            let message = format!("{most} clients have a process of this server for themselves");
            return Err(HostingError::Full { message });
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        own.running.insert(number, None);
        Ok(Slot {
            children: Arc::clone(self),
            number,
        })
    }

    fn seat(&self, number: u64, connection: &Connection) {
        let mut own = self.lock();
        if own.is_closed {
            connection.close();
        } else if let Some(seat) = own.running.get_mut(&number) {
            *seat = Some(connection.clone());
        }
    }

    fn idle_longer_than(&self, limit: Duration) -> Vec<u64> {
        let own = self.lock();
        let is_idle = |child: &Connection| child.is_ended() || child.unwanted_for() >= limit;
        own.running
            .iter()
            .filter(|(_, child)| child.as_ref().is_some_and(is_idle))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Once: whoever ends it first stops its process.
    fn end(&self, number: u64) {
        let mut own = self.lock();
        let Some(connection) = own.running.remove(&number) else {
            return;
        };
        drop(own);
        if let Some(connection) = connection {
            connection.close();
        }
        // Also when it was closed meanwhile: the box may go on, and in one that went there is nothing to do.
        let process = naming::own_process(number);
        let (kit, session) = (Arc::clone(&self.kit), self.session.clone());
        let (secrets, words) = (Arc::clone(&self.secrets), Arc::clone(&self.words));
        self.kit.later(async move {
            // Whoever wonders why it ended asks later.
            let text = greeting::stderr_of(&process, &kit, &session, &secrets).await;
            words.keep(&process, &text.unwrap_or_default());
            stop(&kit, &session, &process).await;
        });
    }

    fn stop_later(&self, process: ProcessId) {
        let (kit, session) = (Arc::clone(&self.kit), self.session.clone());
        self.kit
            .later(async move { stop(&kit, &session, &process).await });
    }

    async fn stop(&self, process: &ProcessId) {
        stop(&self.kit, &self.session, process).await;
    }

    fn lock(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a process go that no longer answers; the next call starts another.
async fn watch(connection: Connection, era: Era, kit: Arc<Kit>, session: SessionId) {
    let watched = Watched {
        connection: &connection,
        era,
        has_answered: true,
    };
    let fault = health::broken(watched, &kit.settings).await;
    let message = &fault.message;
    tracing::warn!(%session, message, "a process beside the main one is given up");
    connection.close();
}

/// Stops the process unless it is kept.
struct StopLater<'a> {
    children: &'a Children,
    process: Option<ProcessId>,
}

impl StopLater<'_> {
    fn keep(mut self) {
        self.process = None;
    }
}

impl Drop for StopLater<'_> {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            self.children.stop_later(process);
        }
    }
}

pub(crate) async fn stop(kit: &Kit, session: &SessionId, process: &ProcessId) {
    let stopped = kit.patiently("stopping a process", kit.runtime.stop(session, process));
    if let Err(error) = stopped.await {
        tracing::warn!(%session, %process, %error, "a process could not be stopped");
    }
}
