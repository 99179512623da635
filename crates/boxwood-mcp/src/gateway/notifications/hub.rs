//! Shares the notifications of one server process between its clients.
//!
//! Sends the combined log level and subscriptions to the server, again after a restart, and delivers
//! notifications in order to the clients that subscribed to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_api::McpServerName;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::gateway::error::RpcError;
use crate::gateway::event_stream::budget::MAX_NOTIFICATION_BYTES;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::preferences::{Preference, Preferences};
use crate::gateway::notifications::subscriptions::{Listener, MemberId, Subscriptions};
use crate::gateway::params;
use crate::gateway::server_registry::ServerRegistry;
use crate::lock;
use crate::wire::{
    Audience, CallOptions, Connection, Inbound, InboundEvent, InboundFilter, Message, Principal,
    Protocol,
};

/// Timeout for log level and subscription requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Capacity of the queue of one listener. Notifications are dropped while it is full.
const QUEUE: usize = 64;

/// One hub per server. Hubs are kept, because they store what was sent to the server.
pub(crate) struct Hubs {
    registry: Arc<dyn ServerRegistry>,
    hubs: Mutex<HashMap<McpServerName, Arc<NotificationHub>>>,
}

impl Hubs {
    pub(crate) fn new(registry: Arc<dyn ServerRegistry>) -> Self {
        Self {
            registry,
            hubs: Mutex::default(),
        }
    }

    pub(crate) fn of(&self, name: &McpServerName) -> Arc<NotificationHub> {
        let names = self.registry.names();
        let mut hubs = lock(&self.hubs);
        hubs.retain(|name, hub| Arc::strong_count(hub) > 1 || names.contains(name));
        if let Some(hub) = hubs.get(name) {
            return Arc::clone(hub);
        }
        let hub = NotificationHub::begin(Arc::clone(&self.registry), name.clone());
        hubs.insert(name.clone(), Arc::clone(&hub));
        hub
    }
}

pub(crate) struct NotificationHub {
    name: McpServerName,
    registry: Arc<dyn ServerRegistry>,
    subscriptions: Mutex<Subscriptions>,
    /// Held during requests to the server, so that changes are sent in order.
    sent: tokio::sync::Mutex<SentState>,
    /// Delivers the notifications of the connection with this id.
    reader: Mutex<Option<(u64, AbortOnDropHandle<()>)>>,
}

#[derive(Default)]
struct SentState {
    connection: Option<u64>,
    preferences: Preferences,
}

impl NotificationHub {
    fn begin(registry: Arc<dyn ServerRegistry>, name: McpServerName) -> Arc<Self> {
        let hub = Arc::new(Self {
            name,
            registry,
            subscriptions: Mutex::default(),
            sent: tokio::sync::Mutex::default(),
            reader: Mutex::default(),
        });
        tokio::spawn(follow(Arc::downgrade(&hub)));
        hub
    }

    pub(crate) fn join(
        self: &Arc<Self>,
        listener: Listener,
        principal: Principal,
        level: Option<LogLevel>,
    ) -> Member {
        let id = lock(&self.subscriptions).join(listener, principal.clone(), level);
        if level.is_some() {
            self.update_later();
        }
        Member {
            id,
            hub: Arc::clone(self),
            principal,
        }
    }

    pub(crate) fn listen(
        self: &Arc<Self>,
        principal: Principal,
    ) -> (Member, mpsc::Receiver<Arc<Message>>) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let listener = move |message: &Arc<Message>| {
            // The receiver is too slow or gone.
            let _ = queue.try_send(Arc::clone(message));
        };
        (self.join(Arc::new(listener), principal, None), receiver)
    }

    /// Delivers the notifications of this connection from now on.
    pub(crate) fn attach(self: &Arc<Self>, connection: &Connection) {
        let mut reader = lock(&self.reader);
        let is_current = reader
            .as_ref()
            .is_some_and(|(id, _)| *id == connection.id());
        if is_current || connection.is_ended() {
            return;
        }
        let inbound = connection.inbound(InboundFilter::Forwarded);
        let task = tokio::spawn(read(Arc::downgrade(self), inbound));
        *reader = Some((connection.id(), AbortOnDropHandle::new(task)));
        drop(reader);
        self.update_later();
    }

    /// In a task of its own: the server may send notifications before it responds.
    fn update_later(self: &Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let hub = Arc::clone(self);
            runtime.spawn(async move { hub.update().await });
        }
    }

    fn deliver(&self, message: &Arc<Message>, audience: &Audience) {
        // Large notifications would exceed the buffers of the clients.
        if message.size() > MAX_NOTIFICATION_BYTES {
            tracing::debug!(server = %self.name, "dropped an oversized notification");
            return;
        }
        let listeners = lock(&self.subscriptions).listeners(message, audience);
        for listener in listeners {
            listener(message);
        }
    }

    /// Returns true if a legacy server is connected.
    fn is_legacy(&self) -> bool {
        let hosted = self.registry.connected(&self.name);
        hosted.is_some_and(|hosted| hosted.handshake().protocol == Protocol::Legacy)
    }

    /// Sends what has changed since the last update. Does not start the server.
    ///
    /// Stops at the first subscription without a response, because clients wait for the lock. A server may
    /// ignore log levels.
    async fn update(&self) {
        let Some(hosted) = self.registry.connected(&self.name) else {
            return;
        };
        if hosted.handshake().protocol == Protocol::Modern {
            return;
        }
        let connection = hosted.main();
        let mut sent = self.sent.lock().await;
        sent.begin(&connection);
        let preferences = lock(&self.subscriptions).combined();
        for change in preferences.changes_since(&sent.preferences) {
            // Does not count as use of the server.
            let options = CallOptions::internal(REQUEST_TIMEOUT);
            let Ok(answer) = change.send(&connection, options).await else {
                if matches!(change, Preference::LogLevel(_)) {
                    continue;
                }
                return;
            };
            if answer.error().is_none() {
                sent.preferences.apply(change);
            }
        }
    }

    /// Starts the server if it is idle, because a client waits for the response.
    async fn send(
        &self,
        sent: &mut SentState,
        principal: &Principal,
        request: &Preference,
    ) -> Result<Message, RpcError> {
        let connection = self.registry.server(&self.name).await?.main();
        sent.begin(&connection);
        let options = CallOptions {
            principal: principal.clone(),
            ..CallOptions::with_timeout(REQUEST_TIMEOUT)
        };
        let answer = request.send(&connection, options).await;
        answer.map_err(|error| RpcError::call_failed(&error, &self.name))
    }
}

impl SentState {
    /// A new process has no log level and no subscriptions.
    fn begin(&mut self, connection: &Connection) {
        if self.connection != Some(connection.id()) {
            *self = Self {
                connection: Some(connection.id()),
                preferences: Preferences::default(),
            };
        }
    }
}

/// Attaches the hub to each new process of the server.
async fn follow(hub: Weak<NotificationHub>) {
    let Some(mut changes) = hub.upgrade().map(|hub| hub.registry.changes()) else {
        return;
    };
    loop {
        changes.borrow_and_update();
        let Some(hub) = hub.upgrade() else {
            return;
        };
        if let Some(hosted) = hub.registry.connected(&hub.name) {
            hub.attach(&hosted.main());
        }
        drop(hub);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn read(hub: Weak<NotificationHub>, mut inbound: Inbound) {
    loop {
        let event = inbound.next().await;
        let Some(hub) = hub.upgrade() else {
            return;
        };
        match event {
            InboundEvent::Message(message) => hub.deliver(&message, &inbound.audience),
            InboundEvent::Lagged(count) => {
                tracing::debug!(server = %hub.name, count, "dropped notifications: receiver too slow");
            }
            InboundEvent::Closed => return,
        }
    }
}

/// One client of a hub. Dropping it removes its subscriptions.
pub(crate) struct Member {
    id: MemberId,
    hub: Arc<NotificationHub>,
    principal: Principal,
}

impl Member {
    pub(crate) fn attach(&self, connection: &Connection) {
        self.hub.attach(connection);
    }

    /// Returns the server's response, or an empty result if no request was needed.
    pub(crate) async fn apply(&self, preference: Preference) -> Result<Message, RpcError> {
        let hub = &self.hub;
        let mut sent = hub.sent.lock().await;
        let (level_before, is_new) = {
            let mut subscriptions = lock(&hub.subscriptions);
            let Some(own) = subscriptions.preferences(self.id) else {
                return Ok(empty());
            };
            (own.level, own.apply(preference.clone()))
        };
        let Some(request) = self.request_for(preference.clone(), &sent.preferences) else {
            return Ok(empty());
        };
        let answer = hub.send(&mut sent, &self.principal, &request).await;
        if answer.as_ref().is_ok_and(|answer| answer.error().is_none()) {
            sent.preferences.apply(request);
        } else if let Some(own) = lock(&hub.subscriptions).preferences(self.id) {
            match preference {
                Preference::LogLevel(_) => own.level = level_before,
                Preference::Subscribe(uri) if is_new => drop(own.uris.remove(&uri)),
                Preference::Subscribe(_) | Preference::Unsubscribe(_) => {}
            }
        }
        answer
    }

    /// The request to the server after a change of this client. `None` if the server needs none.
    fn request_for(&self, preference: Preference, sent: &Preferences) -> Option<Preference> {
        let subscriptions = lock(&self.hub.subscriptions);
        let request = match preference {
            Preference::LogLevel(level) => {
                Preference::LogLevel(subscriptions.level().unwrap_or(level))
            }
            Preference::Unsubscribe(uri) if subscriptions.has_uri(&uri) => return None,
            subscription => subscription,
        };
        drop(subscriptions);
        let is_for_server = match &request {
            // An idle server gets the level when it starts, a modern one with each request.
            Preference::LogLevel(level) => sent.level != Some(*level) && self.hub.is_legacy(),
            Preference::Subscribe(uri) => !sent.uris.contains(uri),
            Preference::Unsubscribe(uri) => sent.uris.contains(uri),
        };
        is_for_server.then_some(request)
    }
}

/// The caller sets the request id.
fn empty() -> Message {
    Message::result(Box::default(), params::empty())
}

impl Drop for Member {
    fn drop(&mut self) {
        let is_update_needed = lock(&self.hub.subscriptions).leave(self.id);
        if is_update_needed {
            self.hub.update_later();
        }
    }
}
