//! A process for one client alone, which may ask that client back.
//!
//! Comes in: the client's own `initialize`. Goes out: calls to the process, its questions and news to the
//! client. A process that ended is started again by the next call, greeted with the same words and told
//! what the client wants to hear. While the client listens, the process is kept.

use std::sync::{Arc, Weak};

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::behind::{Behind, Child, House};
use super::hub::flushed;
use super::json::{object, raw};
use super::params;
use super::questions::{self, CANCELLED, Patience, withdrawn};
use super::session::Session;
use super::telling::{Done, Telling, Wished};
use super::upstream::Upstream;
use crate::hosting::HostingError;
use crate::wire::{Connection, Greeting, Heard, Inbound, Kind, Message};

const FLUSHES: usize = 64;

const NOT_ANSWERED: i64 = -32000;

pub(crate) struct Own {
    initialize: Box<RawValue>,
    running: tokio::sync::Mutex<Option<Arc<Running>>>,
    pub(crate) wished: Wished,
}

/// One run of the process.
pub(crate) struct Running {
    behind: Arc<dyn Behind>,
    connection: Connection,
    greeting: Arc<Greeting>,
    flushes: mpsc::Sender<oneshot::Sender<()>>,
    _listening: AbortOnDropHandle<()>,
    /// What was said to the process before it.
    _telling: AbortOnDropHandle<()>,
    _keep: Box<dyn Send + Sync>,
}

impl Own {
    pub(crate) async fn start(
        session: &Arc<Session>,
        behind: Arc<dyn Behind>,
        initialize: Box<RawValue>,
    ) -> Result<(Self, Arc<Greeting>), HostingError> {
        let wished = Wished::default();
        let (running, _) = Running::start(session, behind, initialize.clone(), &wished).await?;
        let greeting = Arc::clone(&running.greeting);
        let own = Self {
            initialize,
            running: tokio::sync::Mutex::new(Some(Arc::new(running))),
            wished,
        };
        Ok((own, greeting))
    }

    /// The process that runs, or a new one in its place.
    pub(crate) async fn running(
        &self,
        house: &dyn House,
        name: &McpServerName,
        session: &Arc<Session>,
    ) -> Result<Arc<Running>, HostingError> {
        let mut running = self.running.lock().await;
        // One that ended leaves its place to the next.
        if let Some(running) = running.take_if(|running| running.connection.is_ended()) {
            withdraw_all(session, &running.connection);
        }
        if let Some(running) = &*running {
            return Ok(Arc::clone(running));
        }
        let behind = house.server(name).await?;
        let initialize = self.initialize.clone();
        let (next, told) = Running::start(session, behind, initialize, &self.wished).await?;
        let next = Arc::new(next);
        *running = Some(Arc::clone(&next));
        told.soon().await;
        Ok(next)
    }

    /// Only to a process that runs.
    pub(crate) async fn pass(&self, message: Message) {
        let Some(running) = self.running.lock().await.clone() else {
            return;
        };
        // A server that is gone needs no news, and its answers are nobody's.
        let _ = match message.kind() {
            Kind::Response => {
                let id = message
                    .id()
                    .and_then(|id| asked_as(&running.connection, id));
                let Some(id) = id else {
                    return;
                };
                running.connection.respond(message.with_id(id)).await
            }
            Kind::Request | Kind::Notification => running.connection.notify(message).await,
        };
    }
}

impl Running {
    async fn start(
        session: &Arc<Session>,
        behind: Arc<dyn Behind>,
        initialize: Box<RawValue>,
        wished: &Wished,
    ) -> Result<(Self, Done), HostingError> {
        let Child {
            connection,
            greeting,
            inbound,
            _keep: keep,
        } = behind.own(initialize).await?;
        let (flushes, taken) = mpsc::channel(FLUSHES);
        let listening = listen(Arc::downgrade(session), connection.clone(), inbound, taken);
        let telling = Telling {
            wished: wished.clone(),
            connection: connection.clone(),
            greeting: Arc::clone(&greeting),
            server: None,
        };
        let (telling, told) = telling.begin();
        let running = Self {
            behind,
            connection,
            greeting,
            flushes,
            _listening: AbortOnDropHandle::new(tokio::spawn(listening)),
            _telling: telling,
            _keep: keep,
        };
        Ok((running, told))
    }

    pub(crate) fn upstream(&self) -> Upstream {
        Upstream::alone(
            Arc::clone(&self.behind),
            self.connection.clone(),
            Arc::clone(&self.greeting),
        )
    }

    /// Whatever the process has said so far was passed on.
    pub(crate) async fn flush(&self) {
        flushed(&self.flushes, |done| done).await;
    }
}

async fn listen(
    session: Weak<Session>,
    connection: Connection,
    mut inbound: Inbound,
    mut flushes: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let mut asked: Patience<Box<RawValue>> = Patience::default();
    let Some(mut streams) = session.upgrade().map(|session| session.streams()) else {
        return;
    };
    streams.mark_changed();
    loop {
        tokio::select! {
            biased;
            Ok(()) = streams.changed() => connection.keep(*streams.borrow_and_update() > 0),
            heard = inbound.next() => match (heard, session.upgrade()) {
                (Heard::Message(message), Some(session)) => {
                    if let Some(id) = pass_on(&session, &connection, &message).await {
                        asked.begin(id, |id| session.questions.is_open(id));
                    }
                }
                (Heard::Missed(_), Some(_)) => {}
                (Heard::Ended, Some(session)) => {
                    withdraw_all(&session, &connection);
                    return;
                }
                (_, None) => return,
            },
            flush = flushes.recv() => match flush {
                Some(done) => drop(done.send(())),
                None => return,
            },
            id = asked.over() => {
                let Some(session) = session.upgrade() else {
                    return;
                };
                if session.questions.give_up(&id) {
                    session.tell(&withdrawn(&id));
                    let id = asked_as(&connection, &id).unwrap_or_default();
                    refuse(&connection, id, questions::NOT_ANSWERED).await;
                }
            }
        }
    }
}

/// The question that the client was asked, if it was one.
async fn pass_on(
    session: &Session,
    connection: &Connection,
    message: &Message,
) -> Option<Box<RawValue>> {
    if message.kind() != Kind::Request {
        if message.method() != Some(CANCELLED) {
            session.tell(message);
            return None;
        }
        let id = params::get(message.params(), "requestId")?;
        let shown = shown_as(connection, &id);
        if session.questions.settle(&shown) {
            session.tell(&cancelled(message, shown));
        }
        return None;
    }
    let id = message.id().map(ToOwned::to_owned)?;
    let shown = shown_as(connection, &id);
    if session.ask(&message.clone().with_id(shown.clone())) {
        return Some(shown);
    }
    refuse(connection, id, "the client has too many open questions").await;
    None
}

/// The server's own words, with the id that the client knows.
fn cancelled(message: &Message, shown: Box<RawValue>) -> Message {
    let mut params = message.params().and_then(object).unwrap_or_default();
    params.set("requestId", shown);
    message.clone().with_params(Some(params.raw()))
}

/// Servers number their questions from the same number in every run. To the client each id has its run in it,
/// so that no answer reaches a question of the next run.
fn shown_as(connection: &Connection, id: &RawValue) -> Box<RawValue> {
    raw(&format!("{}{}", of_run(connection), id.get()))
}

/// The server's id of a question. `None` when another run has asked it.
fn asked_as(connection: &Connection, shown: &RawValue) -> Option<Box<RawValue>> {
    let shown: String = serde_json::from_str(shown.get()).ok()?;
    let id = shown.strip_prefix(&of_run(connection))?;
    RawValue::from_string(id.to_owned()).ok()
}

fn of_run(connection: &Connection) -> String {
    format!("boxwood-{}-", connection.id())
}

/// Nobody waits for answers to these any more.
fn withdraw_all(session: &Session, gone: &Connection) {
    let is_gone = |id: &RawValue| asked_as(gone, id).is_some();
    for id in session.questions.forget(is_gone) {
        session.tell(&withdrawn(&id));
    }
}

async fn refuse(connection: &Connection, id: Box<RawValue>, text: &str) {
    let answer = Message::failure(Some(id), NOT_ANSWERED, text, None);
    // It is gone, or was answered just now.
    let _ = connection.respond(answer).await;
}
