//! Shares the notifications of one server process between its clients.
//!
//! Sends the combined log level and subscriptions to the server, again after a restart, and delivers
//! notifications in order to the clients that subscribed to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::gateway::error::RpcError;
use crate::gateway::event_stream::budget::MAX_NOTIFICATION_BYTES;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::subscriptions::{
    Change, CombinedSubscriptions, MemberId, NotificationSink, Subscriptions, UriBytes,
};
use crate::gateway::params;
use crate::gateway::server_registry::ServerRegistry;
use crate::lock;
use crate::wire::{
    Audience, CallOptions, Connection, Inbound, InboundEvent, InboundFilter, Message, Principal,
    Protocol,
};

/// Timeout for log level and subscription requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A slower sink loses notifications.
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
    union: CombinedSubscriptions,
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
        listener: Arc<dyn NotificationSink>,
        principal: Principal,
        uri_bytes: UriBytes,
    ) -> Member {
        let id = lock(&self.subscriptions).join(listener, principal.clone(), uri_bytes);
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
        // The limits were checked when `subscriptions/listen` was parsed.
        let uri_bytes = UriBytes::default();
        let member = self.join(Arc::new(Queue(queue)), principal, uri_bytes);
        (member, receiver)
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
            listener.deliver(message);
        }
    }

    /// Sends what has changed since the last update. Does not start the server.
    ///
    /// Stops at the first request without a response, because clients wait for the lock.
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
        let wanted = lock(&self.subscriptions).combined();
        if let Some(level) = wanted.level.filter(|_| wanted.level != sent.union.level) {
            let params = params::of("level", &level);
            if tell(&connection, "logging/setLevel", params).await == Some(true) {
                sent.union.level = wanted.level;
            }
        }
        let changed: Vec<_> = wanted
            .uris
            .symmetric_difference(&sent.union.uris)
            .cloned()
            .collect();
        for uri in changed {
            let is_wanted = wanted.uris.contains(&uri);
            let method = if is_wanted {
                "resources/subscribe"
            } else {
                "resources/unsubscribe"
            };
            match tell(&connection, method, params::of("uri", &uri)).await {
                Some(true) if is_wanted => drop(sent.union.uris.insert(uri)),
                Some(true) => drop(sent.union.uris.remove(&uri)),
                Some(false) => {}
                None => return,
            }
        }
    }

    /// Starts the server if it is idle, because a client waits for the response.
    async fn ask(
        &self,
        sent: &mut SentState,
        member: &Member,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<Message, RpcError> {
        let hosted = self.registry.server(&self.name).await;
        let hosted = hosted.map_err(|error| RpcError::from(&error))?;
        let asked = hosted.main();
        sent.begin(&asked);
        let how = CallOptions {
            principal: member.principal.clone(),
            ..CallOptions::with_timeout(REQUEST_TIMEOUT)
        };
        let answer = asked.request(method, Some(params), how).await;
        answer.map_err(|error| RpcError::call_failed(&error, &self.name))
    }
}

impl SentState {
    /// A new process has no log level and no subscriptions.
    fn begin(&mut self, connection: &Connection) {
        if self.connection != Some(connection.id()) {
            *self = Self {
                connection: Some(connection.id()),
                union: CombinedSubscriptions::default(),
            };
        }
    }
}

/// Returns whether the server accepted the request. `None` without a response.
async fn tell(connection: &Connection, method: &str, params: Box<RawValue>) -> Option<bool> {
    // Does not count as use of the server.
    let how = CallOptions::internal(REQUEST_TIMEOUT);
    let answer = connection.request(method, Some(params), how).await.ok()?;
    Some(answer.error().is_none())
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
        let heard = inbound.next().await;
        let Some(hub) = hub.upgrade() else {
            return;
        };
        match heard {
            InboundEvent::Message(message) => hub.deliver(&message, inbound.audience()),
            InboundEvent::Lagged(count) => {
                tracing::debug!(server = %hub.name, count, "dropped notifications: receiver too slow");
            }
            InboundEvent::Closed => return,
        }
    }
}

struct Queue(mpsc::Sender<Arc<Message>>);

impl NotificationSink for Queue {
    fn deliver(&self, message: &Arc<Message>) {
        // The sink is too slow or gone.
        let _ = self.0.try_send(Arc::clone(message));
    }
}

/// One client of a hub. Dropping it removes its subscriptions.
pub(crate) struct Member {
    id: MemberId,
    hub: Arc<NotificationHub>,
    principal: Principal,
}

impl Member {
    pub(crate) fn hub(&self) -> &Arc<NotificationHub> {
        &self.hub
    }

    /// Returns the server's response, or an empty result if no request was needed.
    pub(crate) async fn set_level(&self, level: LogLevel) -> Result<Message, RpcError> {
        let hub = &self.hub;
        let mut sent = hub.sent.lock().await;
        let before = lock(&hub.subscriptions).set_level(self.id, Some(level));
        let wanted = lock(&hub.subscriptions).level();
        if wanted == sent.union.level || self.is_modern() {
            return Ok(empty());
        }
        let params = params::of("level", &wanted.unwrap_or(level));
        let answer = hub.ask(&mut sent, self, "logging/setLevel", params).await;
        if is_refused(&answer) {
            lock(&hub.subscriptions).set_level(self.id, before);
        } else {
            sent.union.level = wanted;
        }
        answer
    }

    /// Sent to the server when it is connected.
    pub(crate) fn set_level_when_connected(&self, level: LogLevel) {
        lock(&self.hub.subscriptions).set_level(self.id, Some(level));
        self.hub.update_later();
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.hub.registry.connected(&self.hub.name).is_some()
    }

    pub(crate) async fn subscribe(&self, uri: &str) -> Result<Message, RpcError> {
        let hub = &self.hub;
        let mut sent = hub.sent.lock().await;
        let change = lock(&hub.subscriptions).subscribe(self.id, uri);
        match change {
            Change::Made => {}
            Change::Nothing => return Ok(empty()),
            Change::TooMany => return Err(RpcError::too_many_subscriptions()),
        }
        if sent.union.uris.contains(uri) {
            return Ok(empty());
        }
        let params = params::of("uri", uri);
        let answer = hub
            .ask(&mut sent, self, "resources/subscribe", params)
            .await;
        if is_refused(&answer) {
            lock(&hub.subscriptions).unsubscribe(self.id, uri);
        } else {
            sent.union.uris.insert(uri.to_owned());
        }
        answer
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) -> Result<Message, RpcError> {
        let hub = &self.hub;
        let mut sent = hub.sent.lock().await;
        let change = lock(&hub.subscriptions).unsubscribe(self.id, uri);
        let is_wanted = lock(&hub.subscriptions).has_uri(uri);
        if change == Change::Nothing || is_wanted || !sent.union.uris.remove(uri) {
            return Ok(empty());
        }
        let params = params::of("uri", uri);
        hub.ask(&mut sent, self, "resources/unsubscribe", params)
            .await
    }

    /// Modern servers get the log level with each request.
    fn is_modern(&self) -> bool {
        let hosted = self.hub.registry.connected(&self.hub.name);
        hosted.is_some_and(|hosted| hosted.handshake().protocol == Protocol::Modern)
    }
}

fn is_refused(answer: &Result<Message, RpcError>) -> bool {
    answer
        .as_ref()
        .map_or(true, |answer| answer.error().is_some())
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
