//! One shared server, as all its clients together see it.
//!
//! Comes in: wishes of clients that share one process, and what that process says unasked. Goes out: to the
//! server the union of the wishes, to each client what it wished for, in the order the server said it.
//! After a restart the new process is told again. Never here: answers to calls, and HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::behind::House;
use super::budget::LARGEST_NEWS;
use super::level::Level;
use super::params;
use super::refusal::Refusal;
use super::wishes::{Change, Listener, MemberId, Union, UriBytes, Wishes};
use crate::wire::{Ask, Audience, Connection, Era, Heard, Hears, Message, Principal};

/// For one word about levels and subscriptions.
const TELLING: Duration = Duration::from_secs(30);
/// What was said before an answer is on its way already; nobody waits long for it.
const FLUSHING: Duration = Duration::from_secs(1);
/// Hosting may notice an end a little later than we do.
const NOTICING: Duration = Duration::from_secs(1);
const ORDERS: usize = 256;
/// A listener of the queued kind that is slower loses what comes then.
const QUEUE: usize = 64;

/// A hub for each server that somebody has listened to. It stays: what the server was told is known.
pub(crate) struct Hubs {
    house: Arc<dyn House>,
    hubs: Mutex<HashMap<McpServerName, Arc<Hub>>>,
}

impl Hubs {
    pub(crate) fn new(house: Arc<dyn House>) -> Self {
        Self {
            house,
            hubs: Mutex::default(),
        }
    }

    pub(crate) fn of(&self, name: &McpServerName) -> Arc<Hub> {
        let names = self.house.names();
        let mut hubs = self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.retain(|name, hub| Arc::strong_count(hub) > 1 || names.contains(name));
        if let Some(hub) = hubs.get(name) {
            return Arc::clone(hub);
        }
        let hub = Hub::begin(Arc::clone(&self.house), name.clone());
        hubs.insert(name.clone(), Arc::clone(&hub));
        hub
    }
}

pub(crate) struct Hub {
    name: McpServerName,
    house: Arc<dyn House>,
    wishes: Mutex<Wishes>,
    /// Held while the server is told, so that it hears one thing after the other.
    told: tokio::sync::Mutex<Told>,
    orders: mpsc::Sender<Order>,
    /// The connection that is listened to.
    heard: watch::Receiver<Option<u64>>,
}

#[derive(Default)]
struct Told {
    connection: Option<u64>,
    union: Union,
}

enum Order {
    Flush(oneshot::Sender<()>),
    Tell,
}

impl Hub {
    fn begin(house: Arc<dyn House>, name: McpServerName) -> Arc<Self> {
        let (orders, taken) = mpsc::channel(ORDERS);
        let (hearing, heard) = watch::channel(None);
        let hub = Arc::new(Self {
            name,
            house,
            wishes: Mutex::default(),
            told: tokio::sync::Mutex::default(),
            orders,
            heard,
        });
        tokio::spawn(listen(Arc::downgrade(&hub), taken, hearing));
        hub
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(
        self: &Arc<Self>,
        listener: Arc<dyn Listener>,
        principal: Principal,
        uri_bytes: UriBytes,
    ) -> Member {
        let id = self.wishes().join(listener, principal.clone(), uri_bytes);
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
        // Whoever asks to listen names all of them at once, and was refused if it is too much.
        let uri_bytes = UriBytes::default();
        let member = self.join(Arc::new(Queue(queue)), principal, uri_bytes);
        (member, receiver)
    }

    /// Whatever the server has said so far was passed on.
    pub(crate) async fn flush(&self) {
        flushed(&self.orders, Order::Flush).await;
    }

    /// From here on nothing is missed that this connection says.
    pub(crate) async fn hears(&self, connection: &Connection) {
        if *self.heard.borrow() == Some(connection.id()) {
            return;
        }
        let mut heard = self.heard.clone();
        let is_heard = heard.wait_for(|heard| *heard == Some(connection.id()));
        // The news are late then, and the call goes on.
        let _ = timeout(FLUSHING, is_heard).await;
    }

    fn deliver(&self, message: &Arc<Message>, audience: &Audience) {
        // Many of them may wait at once for each listener, and no client would get it.
        if message.size() > LARGEST_NEWS {
            tracing::debug!(server = %self.name, "news of a server are too large");
            return;
        }
        let listeners = self.wishes().listeners(message, audience);
        for listener in listeners {
            listener.hear(message);
        }
    }

    /// Tells the server what has changed since it was last told. Starts nothing.
    ///
    /// A server that leaves a subscription unanswered is not told the rest now: clients wait for their
    /// turn.
    async fn tell(&self) {
        let Some(behind) = self.house.connected(&self.name) else {
            return;
        };
        if behind.greeting().era == Era::Modern {
            return;
        }
        let connection = behind.main();
        let mut told = self.told.lock().await;
        told.begin(&connection);
        let wanted = self.wishes().union();
        if let Some(level) = wanted.level.filter(|_| wanted.level != told.union.level) {
            let params = params::of_text("level", level.as_str());
            match tell(&connection, "logging/setLevel", params).await {
                Outcome::Done => told.union.level = wanted.level,
                Outcome::Refused | Outcome::Unanswered => {}
            }
        }
        let missing: Vec<_> = wanted.uris.difference(&told.union.uris).cloned().collect();
        let surplus: Vec<_> = told.union.uris.difference(&wanted.uris).cloned().collect();
        for uri in missing {
            let params = params::of_text("uri", &uri);
            match tell(&connection, "resources/subscribe", params).await {
                Outcome::Done => drop(told.union.uris.insert(uri)),
                Outcome::Refused => {}
                Outcome::Unanswered => return,
            }
        }
        for uri in surplus {
            let params = params::of_text("uri", &uri);
            match tell(&connection, "resources/unsubscribe", params).await {
                Outcome::Done => drop(told.union.uris.remove(&uri)),
                Outcome::Refused => {}
                Outcome::Unanswered => return,
            }
        }
    }

    /// Starts the server when it rests: a client waits for its word.
    async fn ask(
        &self,
        told: &mut Told,
        member: &Member,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<Message, Refusal> {
        let behind = self.house.server(&self.name).await;
        let behind = behind.map_err(|error| Refusal::from(&error))?;
        let asked = behind.main();
        told.begin(&asked);
        let how = Ask {
            principal: member.principal.clone(),
            ..Ask::within(TELLING)
        };
        let answer = asked.request(method, Some(params), how).await;
        answer.map_err(|error| Refusal::unanswered(&error, &self.name))
    }
}

impl Told {
    /// A new process has been told nothing.
    fn begin(&mut self, connection: &Connection) {
        if self.connection != Some(connection.id()) {
            *self = Self {
                connection: Some(connection.id()),
                union: Union::default(),
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
    // Nobody uses the server because of it.
    let how = Ask::ours(TELLING);
    match connection.request(method, Some(params), how).await {
        Ok(answer) if answer.error().is_none() => Outcome::Done,
        Ok(_) => Outcome::Refused,
        Err(_) => Outcome::Unanswered,
    }
}

async fn listen(
    hub: Weak<Hub>,
    mut orders: mpsc::Receiver<Order>,
    hearing: watch::Sender<Option<u64>>,
) {
    let Some((house, name)) = hub
        .upgrade()
        .map(|hub| (Arc::clone(&hub.house), hub.name.clone()))
    else {
        return;
    };
    let mut changes = house.changes();
    loop {
        changes.borrow_and_update();
        let main = house.connected(&name).map(|behind| behind.main());
        let is_lingering = main.as_ref().is_some_and(Connection::is_ended);
        let Some(connection) = main.filter(|main| !main.is_ended()) else {
            hearing.send_replace(None);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(NOTICING), if is_lingering => {}
                // Nothing to flush and nobody to tell; a new server is told everything.
                order = orders.recv() => if order.is_none() {
                    return;
                },
            }
            continue;
        };
        let mut inbound = connection.inbound(Hears::Notifications);
        hearing.send_replace(Some(connection.id()));
        // Whoever listens does not hold on to the process.
        drop(connection);
        spawn_tell(&hub);
        loop {
            tokio::select! {
                biased;
                heard = inbound.next() => match heard {
                    Heard::Message(message) => match hub.upgrade() {
                        Some(hub) => hub.deliver(&message, inbound.audience()),
                        None => return,
                    },
                    Heard::Missed(count) => {
                        tracing::debug!(server = %name, count, "news of a server were lost");
                    }
                    Heard::Ended => break,
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

/// Asks whoever listens to say when everything before was passed on.
pub(crate) async fn flushed<T>(
    orders: &mpsc::Sender<T>,
    order: impl FnOnce(oneshot::Sender<()>) -> T,
) {
    let (done, flushed) = oneshot::channel();
    let flushing = async {
        if orders.send(order(done)).await.is_ok() {
            // An error is a server that is gone, and so is what it said.
            let _ = flushed.await;
        }
    };
    // Too late is no harm: the answer then comes before the news.
    let _ = timeout(FLUSHING, flushing).await;
}

/// Beside the listening: a server may log before it answers.
fn spawn_tell(hub: &Weak<Hub>) {
    if let Some(hub) = hub.upgrade() {
        tokio::spawn(async move { hub.tell().await });
    }
}

struct Queue(mpsc::Sender<Arc<Message>>);

impl Listener for Queue {
    fn hear(&self, message: &Arc<Message>) {
        // Full is a reader that is too slow, closed is one that left.
        let _ = self.0.try_send(Arc::clone(message));
    }
}

/// One client's place at a hub. Dropping it takes its wishes back.
pub(crate) struct Member {
    id: MemberId,
    hub: Arc<Hub>,
    principal: Principal,
}

impl Member {
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// A call of this client goes on until the guard is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.hub.wishes().busy(self.id);
        Busy(Arc::clone(self))
    }

    /// The server's answer when it had to be asked, an empty one otherwise.
    pub(crate) async fn set_level(&self, level: &str) -> Result<Message, Refusal> {
        let level = Level::required(level)?;
        let hub = &self.hub;
        let mut told = hub.told.lock().await;
        let before = hub.wishes().set_level(self.id, Some(level));
        let wanted = hub.wishes().level();
        if wanted == told.union.level || self.is_modern() {
            return Ok(empty());
        }
        let params = params::of_text("level", wanted.unwrap_or(level).as_str());
        let answer = hub.ask(&mut told, self, "logging/setLevel", params).await;
        if is_refused(&answer) {
            hub.wishes().set_level(self.id, before);
        } else {
            told.union.level = wanted;
        }
        answer
    }

    /// The server is told when it is there.
    pub(crate) fn wish_level(&self, level: &str) {
        self.hub.wishes().set_level(self.id, Level::parse(level));
        // Full of flushes: the next change tells it.
        let _ = self.hub.orders.try_send(Order::Tell);
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.hub.house.connected(&self.hub.name).is_some()
    }

    pub(crate) async fn subscribe(&self, uri: &str) -> Result<Message, Refusal> {
        let hub = &self.hub;
        let mut told = hub.told.lock().await;
        match hub.wishes().subscribe(self.id, uri) {
            Change::Made => {}
            Change::Nothing => return Ok(empty()),
            Change::TooMany => return Err(Refusal::too_many_subscriptions()),
        }
        if told.union.uris.contains(uri) {
            return Ok(empty());
        }
        let params = params::of_text("uri", uri);
        let answer = hub
            .ask(&mut told, self, "resources/subscribe", params)
            .await;
        if is_refused(&answer) {
            hub.wishes().unsubscribe(self.id, uri);
        } else {
            told.union.uris.insert(uri.to_owned());
        }
        answer
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) -> Result<Message, Refusal> {
        let hub = &self.hub;
        let mut told = hub.told.lock().await;
        let change = hub.wishes().unsubscribe(self.id, uri);
        let is_wanted = hub.wishes().has_uri(uri);
        if change == Change::Nothing || is_wanted || !told.union.uris.remove(uri) {
            return Ok(empty());
        }
        let params = params::of_text("uri", uri);
        hub.ask(&mut told, self, "resources/unsubscribe", params)
            .await
    }

    /// That era has no levels for a whole connection; each request brings its own.
    fn is_modern(&self) -> bool {
        let behind = self.hub.house.connected(&self.hub.name);
        behind.is_some_and(|behind| behind.greeting().era == Era::Modern)
    }
}

fn is_refused(answer: &Result<Message, Refusal>) -> bool {
    answer
        .as_ref()
        .map_or(true, |answer| answer.error().is_some())
}

/// The caller puts its own id on it.
fn empty() -> Message {
    Message::result(Box::default(), params::empty())
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.hub.wishes().leave(self.id) {
            // Full of flushes: the next change tells it.
            let _ = self.hub.orders.try_send(Order::Tell);
        }
    }
}

/// See [`Member::busy`].
pub(crate) struct Busy(Arc<Member>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.hub.wishes().done(self.0.id);
    }
}
