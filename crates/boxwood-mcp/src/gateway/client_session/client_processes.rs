//! The processes of one client that accepts server requests: one for each server that it calls.
//!
//! A process starts with the first call of its server, and again if it ended. It gets the client's
//! `initialize` parameters, log level and subscriptions, and may send requests to the client. It is kept
//! while the client has a stream open. A slow server does not delay the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_api::McpServerName;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::gateway::aggregate::rewrite::rewrite_notification;
use crate::gateway::client_session::ClientSession;
use crate::gateway::client_session::pending_requests::{CANCELLED, Responder, TOO_MANY_REQUESTS};
use crate::gateway::json::object;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::preferences::{Preference, Preferences};
use crate::gateway::params;
use crate::gateway::server_registry::{DedicatedProcess, HostedServer};
use crate::hosting::HostingError;
use crate::lock;
use crate::wire::{
    CallOptions, Connection, Handshake, Inbound, InboundEvent, Kind, Message, cancellation,
};

/// Timeout of one request that sets a log level or a subscription.
const PREFERENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent subscription requests to one process.
const MAX_CONCURRENT_REQUESTS: usize = 16;
/// The first call on a new process waits this long for the log level and the subscriptions.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct ClientProcesses {
    session: Weak<ClientSession>,
    initialize: Box<RawValue>,
    /// The client addresses all servers: its names and URIs contain the server, and the notification hubs
    /// deliver the list changes.
    is_for_all: bool,
    slots: Mutex<HashMap<McpServerName, Arc<Slot>>>,
    preferences: Arc<Mutex<Preferences>>,
}

/// The process of one server.
#[derive(Default)]
struct Slot {
    /// Held while the process starts.
    starting: tokio::sync::Mutex<()>,
    process: Mutex<Option<Arc<ClientProcess>>>,
}

/// One run of a process.
pub(crate) struct ClientProcess {
    session: Weak<ClientSession>,
    pub(crate) connection: Connection,
    pub(crate) handshake: Arc<Handshake>,
    _reading: AbortOnDropHandle<()>,
    _guard: Box<dyn Send + Sync>,
}

impl ClientProcesses {
    /// `initialize` are the client's parameters.
    pub(crate) fn new(
        session: &Arc<ClientSession>,
        initialize: &RawValue,
        is_for_all: bool,
    ) -> Self {
        Self {
            session: Arc::downgrade(session),
            initialize: initialize.to_owned(),
            is_for_all,
            slots: Mutex::default(),
            preferences: Arc::clone(&session.preferences),
        }
    }

    /// Returns the running process of the server, or starts a new one.
    pub(crate) async fn of(
        &self,
        hosted: &dyn HostedServer,
    ) -> Result<Arc<ClientProcess>, HostingError> {
        let slot = {
            let mut slots = lock(&self.slots);
            // Slots without a process may belong to removed servers.
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.running().is_some());
            Arc::clone(slots.entry(hosted.name().clone()).or_default())
        };
        let starting = slot.starting.lock().await;
        if let Some(process) = slot.running() {
            return Ok(process);
        }
        drop(lock(&slot.process).take());
        let process = Arc::new(self.start(hosted).await?);
        *lock(&slot.process) = Some(Arc::clone(&process));
        // Preferences set from now on reach the process directly. Earlier ones are sent by this task, even
        // if the caller leaves.
        let preferences = Arc::clone(&self.preferences);
        let server = self.server(hosted.name());
        let setting = tokio::spawn(set_all(Arc::downgrade(&process), preferences, server));
        drop(starting);
        // On a timeout, the call is made without them.
        let _ = timeout(SETUP_TIMEOUT, setting).await;
        Ok(process)
    }

    async fn start(&self, hosted: &dyn HostedServer) -> Result<ClientProcess, HostingError> {
        let DedicatedProcess {
            connection,
            handshake,
            inbound,
            _guard: guard,
        } = hosted.start_dedicated(self.initialize.clone()).await?;
        let reader = ProcessReader {
            session: Weak::clone(&self.session),
            connection: connection.clone(),
            server: self.server(hosted.name()),
        };
        Ok(ClientProcess {
            session: Weak::clone(&self.session),
            connection,
            handshake,
            _reading: AbortOnDropHandle::new(tokio::spawn(reader.run(inbound))),
            _guard: guard,
        })
    }

    /// The server name, if the client's names and URIs contain it.
    fn server(&self, name: &McpServerName) -> Option<McpServerName> {
        self.is_for_all.then(|| name.clone())
    }

    /// Stores a preference and sends it to the running processes.
    pub(crate) async fn apply(&self, preference: Preference) {
        lock(&self.preferences).apply(preference.clone());
        let setting = self.running().into_iter().map(async |(name, process)| {
            let server = self.server(&name);
            set(&process, &preference, server.as_ref()).await;
        });
        join_all(setting).await;
    }

    /// Forwards a client notification such as `notifications/roots/list_changed`.
    pub(crate) async fn notify(&self, message: &Message) {
        let processes = self.running().into_iter();
        let notifying = processes.map(async |(_, process)| {
            // The process may be gone.
            let _ = process.connection.notify(message.clone()).await;
        });
        join_all(notifying).await;
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.running().is_empty()
    }

    fn running(&self) -> Vec<(McpServerName, Arc<ClientProcess>)> {
        let slots = lock(&self.slots);
        let running = slots
            .iter()
            .filter_map(|(name, slot)| Some((name.clone(), slot.running()?)));
        running.collect()
    }
}

impl Slot {
    fn running(&self) -> Option<Arc<ClientProcess>> {
        let process = lock(&self.process).clone();
        process.filter(|process| !process.connection.is_ended())
    }
}

/// Sends the preferences to a new process. Repeats until nothing has changed in the meantime.
async fn set_all(
    process: Weak<ClientProcess>,
    preferences: Arc<Mutex<Preferences>>,
    server: Option<McpServerName>,
) {
    let mut sent = Preferences::default();
    while let Some(process) = process.upgrade() {
        let current = lock(&preferences).clone();
        let mut changes = current.changes_since(&sent);
        if changes.is_empty() {
            return;
        }
        let (process, server) = (&process, server.as_ref());
        let is_level = |change: &mut Preference| matches!(change, Preference::LogLevel(_));
        for level in changes.extract_if(.., is_level) {
            set(process, &level, server).await;
        }
        let subscribing =
            stream::iter(changes).for_each_concurrent(MAX_CONCURRENT_REQUESTS, async |change| {
                set(process, &change, server).await;
            });
        subscribing.await;
        sent = current;
    }
}

async fn set(process: &ClientProcess, preference: &Preference, server: Option<&McpServerName>) {
    let is_log_level = matches!(preference, Preference::LogLevel(_));
    if let Some(own) = preference.of_server(server)
        && (!is_log_level || process.handshake.has("logging"))
    {
        let options = CallOptions::with_timeout(PREFERENCE_TIMEOUT);
        // Errors are ignored: the same request succeeded before, on this process or on the shared one.
        let _ = own.send(&process.connection, options).await;
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            cancel_requests(&session, &self.connection);
        }
    }
}

/// Passes the messages of one process to the client.
struct ProcessReader {
    session: Weak<ClientSession>,
    connection: Connection,
    /// Set for clients of all servers, whose URIs contain the server name.
    server: Option<McpServerName>,
}

impl ProcessReader {
    async fn run(self, mut inbound: Inbound) {
        let Some(mut streams) = self.session.upgrade().map(|session| session.streams()) else {
            return;
        };
        streams.mark_changed();
        loop {
            tokio::select! {
                biased;
                Ok(()) = streams.changed() => {
                    self.connection.set_listening(*streams.borrow_and_update() > 0);
                }
                event = inbound.next() => match (event, self.session.upgrade()) {
                    (InboundEvent::Message(message), Some(session)) => {
                        self.handle(&session, &message).await;
                    }
                    (InboundEvent::Lagged(_), Some(_)) => {}
                    (InboundEvent::Closed, Some(session)) => {
                        cancel_requests(&session, &self.connection);
                        return;
                    }
                    (_, None) => return,
                },
            }
        }
    }

    async fn handle(&self, session: &ClientSession, message: &Message) {
        if message.kind() == Kind::Request {
            let Some(id) = message.id().map(ToOwned::to_owned) else {
                return;
            };
            let connection = self.connection.clone();
            let responder = Responder { connection, id };
            if let Err(responder) = session.send_request(message, responder) {
                responder.refuse(TOO_MANY_REQUESTS).await;
            }
        } else if message.method() == Some(CANCELLED) {
            let Some(cancelled) = params::get(message.params(), "requestId") else {
                return;
            };
            let taken = session.pending.take_of(&self.connection, Some(&cancelled));
            for id in taken {
                let mut params = message.params().and_then(object).unwrap_or_default();
                params.set("requestId", id);
                session.send_notification(&message.clone().with_params(Some(params.raw())));
            }
        } else {
            self.notify(session, message);
        }
    }

    fn notify(&self, session: &ClientSession, message: &Message) {
        let Some(server) = &self.server else {
            session.send_notification(message);
            return;
        };
        let message = rewrite_notification(server, message);
        let is_wanted = match message.method() {
            Some("notifications/message") => {
                let least = lock(&session.preferences).level.unwrap_or(LogLevel::Info);
                LogLevel::of(&message) >= least
            }
            Some("notifications/resources/updated") => {
                let uri = params::text(message.params(), "uri");
                uri.is_some_and(|uri| lock(&session.preferences).uris.contains(&uri))
            }
            _ => false,
        };
        if is_wanted {
            session.send_notification(&message);
        }
    }
}

/// Cancels the open requests of a process that ended.
fn cancel_requests(session: &ClientSession, ended: &Connection) {
    for id in session.pending.take_of(ended, None) {
        session.send_notification(&cancellation(id));
    }
}
