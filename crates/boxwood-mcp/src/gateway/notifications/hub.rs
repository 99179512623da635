//! Shares the notifications of one server process between its clients.
//!
//! Sends the combined log level and subscriptions to the server, again after a restart, and delivers
//! notifications in order to the clients that subscribed to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::gateway::error::RpcError;
use crate::gateway::event_stream::budget::MAX_NOTIFICATION_BYTES;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::subscriptions::{
    Change, CombinedSubscriptions, MemberId, NotificationSink, Subscriptions, UriBytes,
};
use crate::gateway::params;
use crate::gateway::server_registry::ServerRegistry;
use crate::wire::{
    Audience, CallOptions, Connection, InboundEvent, InboundFilter, Message, Principal, Protocol,
};

/// Timeout for log level and subscription requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for delivery of notifications that came before a response.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Hosting may notice a closed connection slightly later.
const RECHECK_AFTER: Duration = Duration::from_secs(1);
const ORDERS: usize = 256;
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
        let mut hubs = self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
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
    orders: mpsc::Sender<Order>,
    /// Id of the connection whose notifications are read.
    heard: watch::Receiver<Option<u64>>,
}

#[derive(Default)]
struct SentState {
    connection: Option<u64>,
    union: CombinedSubscriptions,
}

enum Order {
    Flush(oneshot::Sender<()>),
    Tell,
}

impl NotificationHub {
    fn begin(registry: Arc<dyn ServerRegistry>, name: McpServerName) -> Arc<Self> {
        let (orders, taken) = mpsc::channel(ORDERS);
        let (hearing, heard) = watch::channel(None);
        let hub = Arc::new(Self {
            name,
            registry,
            subscriptions: Mutex::default(),
            sent: tokio::sync::Mutex::default(),
            orders,
            heard,
        });
        tokio::spawn(listen(Arc::downgrade(&hub), taken, hearing));
        hub
    }

    fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(
        self: &Arc<Self>,
        listener: Arc<dyn NotificationSink>,
        principal: Principal,
        uri_bytes: UriBytes,
    ) -> Member {
        let id = self
            .subscriptions()
            .join(listener, principal.clone(), uri_bytes);
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

    /// Waits until all notifications so far were delivered.
    pub(crate) async fn flush(&self) {
        flushed(&self.orders, Order::Flush).await;
    }

    /// Waits until the notifications of this connection are read.
    pub(crate) async fn hears(&self, connection: &Connection) {
        if *self.heard.borrow() == Some(connection.id()) {
            return;
        }
        let mut heard = self.heard.clone();
        let is_heard = heard.wait_for(|heard| *heard == Some(connection.id()));
        // On a timeout, the notifications come late and the call continues.
        let _ = timeout(FLUSH_TIMEOUT, is_heard).await;
    }

    fn deliver(&self, message: &Arc<Message>, audience: &Audience) {
        // Large notifications would exceed the buffers of the clients.
        if message.size() > MAX_NOTIFICATION_BYTES {
            tracing::debug!(server = %self.name, "dropped an oversized notification");
            return;
        }
        let listeners = self.subscriptions().listeners(message, audience);
        for listener in listeners {
            listener.deliver(message);
        }
    }

    /// Sends what has changed since the last update. Does not start the server.
    ///
    /// Stops at the first request without a response, because clients wait for the lock.
    async fn tell(&self) {
        let Some(hosted) = self.registry.connected(&self.name) else {
            return;
        };
        if hosted.handshake().protocol == Protocol::Modern {
            return;
        }
        let connection = hosted.main();
        let mut sent = self.sent.lock().await;
        sent.begin(&connection);
        let wanted = self.subscriptions().combined();
        if let Some(level) = wanted.level.filter(|_| wanted.level != sent.union.level) {
            let params = params::of_text("level", level.as_str());
            match tell(&connection, "logging/setLevel", params).await {
                Outcome::Done => sent.union.level = wanted.level,
                Outcome::Refused | Outcome::Unanswered => {}
            }
        }
        let missing: Vec<_> = wanted.uris.difference(&sent.union.uris).cloned().collect();
        let surplus: Vec<_> = sent.union.uris.difference(&wanted.uris).cloned().collect();
        for uri in missing {
            let params = params::of_text("uri", &uri);
            match tell(&connection, "resources/subscribe", params).await {
                Outcome::Done => drop(sent.union.uris.insert(uri)),
                Outcome::Refused => {}
                Outcome::Unanswered => return,
            }
        }
        for uri in surplus {
            let params = params::of_text("uri", &uri);
            match tell(&connection, "resources/unsubscribe", params).await {
                Outcome::Done => drop(sent.union.uris.remove(&uri)),
                Outcome::Refused => {}
                Outcome::Unanswered => return,
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

enum Outcome {
    Done,
    Refused,
    Unanswered,
}

async fn tell(connection: &Connection, method: &str, params: Box<RawValue>) -> Outcome {
    // Does not count as use of the server.
    let how = CallOptions::internal(REQUEST_TIMEOUT);
    match connection.request(method, Some(params), how).await {
        Ok(answer) if answer.error().is_none() => Outcome::Done,
        Ok(_) => Outcome::Refused,
        Err(_) => Outcome::Unanswered,
    }
}

async fn listen(
    hub: Weak<NotificationHub>,
    mut orders: mpsc::Receiver<Order>,
    hearing: watch::Sender<Option<u64>>,
) {
    let Some((registry, name)) = hub
        .upgrade()
        .map(|hub| (Arc::clone(&hub.registry), hub.name.clone()))
    else {
        return;
    };
    let mut changes = registry.changes();
    loop {
        changes.borrow_and_update();
        let main = registry.connected(&name).map(|hosted| hosted.main());
        let is_lingering = main.as_ref().is_some_and(Connection::is_ended);
        let Some(connection) = main.filter(|main| !main.is_ended()) else {
            hearing.send_replace(None);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(RECHECK_AFTER), if is_lingering => {}
                // A new process gets the complete state.
                order = orders.recv() => if order.is_none() {
                    return;
                },
            }
            continue;
        };
        let mut inbound = connection.inbound(InboundFilter::Notifications);
        hearing.send_replace(Some(connection.id()));
        // Reading notifications does not keep the connection open.
        drop(connection);
        spawn_tell(&hub);
        loop {
            tokio::select! {
                biased;
                heard = inbound.next() => match heard {
                    InboundEvent::Message(message) => match hub.upgrade() {
                        Some(hub) => hub.deliver(&message, inbound.audience()),
                        None => return,
                    },
                    InboundEvent::Lagged(count) => {
                        tracing::debug!(server = %name, count, "dropped notifications: receiver too slow");
                    }
                    InboundEvent::Closed => break,
                },
                order = orders.recv() => match order {
                    Some(Order::Flush(done)) => drop(done.send(())),
                    Some(Order::Tell) => spawn_tell(&hub),
                    None => return,
                },
            }
        }
    }
}

/// Waits until the reading task has delivered everything before.
pub(crate) async fn flushed<T>(
    orders: &mpsc::Sender<T>,
    order: impl FnOnce(oneshot::Sender<()>) -> T,
) {
    let (done, flushed) = oneshot::channel();
    let flushing = async {
        if orders.send(order(done)).await.is_ok() {
            // An error means that the connection was closed.
            let _ = flushed.await;
        }
    };
    // On a timeout, the response comes before the notifications.
    let _ = timeout(FLUSH_TIMEOUT, flushing).await;
}

/// In a task of its own: the server may send notifications before it responds.
fn spawn_tell(hub: &Weak<NotificationHub>) {
    if let Some(hub) = hub.upgrade() {
        tokio::spawn(async move { hub.tell().await });
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

    /// Marks a call of this client until the guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.hub.subscriptions().busy(self.id);
        Busy(Arc::clone(self))
    }

    /// Returns the server's response, or an empty result if no request was needed.
    pub(crate) async fn set_level(&self, level: &str) -> Result<Message, RpcError> {
        let level = LogLevel::required(level)?;
        let hub = &self.hub;
        let mut sent = hub.sent.lock().await;
        let before = hub.subscriptions().set_level(self.id, Some(level));
        let wanted = hub.subscriptions().level();
        if wanted == sent.union.level || self.is_modern() {
            return Ok(empty());
        }
        let params = params::of_text("level", wanted.unwrap_or(level).as_str());
        let answer = hub.ask(&mut sent, self, "logging/setLevel", params).await;
        if is_refused(&answer) {
            hub.subscriptions().set_level(self.id, before);
        } else {
            sent.union.level = wanted;
        }
        answer
    }

    /// Sent to the server when it is connected.
    pub(crate) fn set_level_when_connected(&self, level: &str) {
        self.hub
            .subscriptions()
            .set_level(self.id, LogLevel::parse(level));
        // If the queue is full, the next change updates the server.
        let _ = self.hub.orders.try_send(Order::Tell);
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.hub.registry.connected(&self.hub.name).is_some()
    }

    pub(crate) async fn subscribe(&self, uri: &str) -> Result<Message, RpcError> {
        let hub = &self.hub;
        let mut sent = hub.sent.lock().await;
        match hub.subscriptions().subscribe(self.id, uri) {
            Change::Made => {}
            Change::Nothing => return Ok(empty()),
            Change::TooMany => return Err(RpcError::too_many_subscriptions()),
        }
        if sent.union.uris.contains(uri) {
            return Ok(empty());
        }
        let params = params::of_text("uri", uri);
        let answer = hub
            .ask(&mut sent, self, "resources/subscribe", params)
            .await;
        if is_refused(&answer) {
            hub.subscriptions().unsubscribe(self.id, uri);
        } else {
            sent.union.uris.insert(uri.to_owned());
        }
        answer
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) -> Result<Message, RpcError> {
        let hub = &self.hub;
        let mut sent = hub.sent.lock().await;
        let change = hub.subscriptions().unsubscribe(self.id, uri);
        let is_wanted = hub.subscriptions().has_uri(uri);
        if change == Change::Nothing || is_wanted || !sent.union.uris.remove(uri) {
            return Ok(empty());
        }
        let params = params::of_text("uri", uri);
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
        if self.hub.subscriptions().leave(self.id) {
            // If the queue is full, the next change updates the server.
            let _ = self.hub.orders.try_send(Order::Tell);
        }
    }
}

/// See [`Member::busy`].
pub(crate) struct Busy(Arc<Member>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.hub.subscriptions().done(self.0.id);
    }
}
