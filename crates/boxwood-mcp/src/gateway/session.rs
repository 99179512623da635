//! One client's session of the older era: what it may use, what goes on in it, where news go.
//!
//! Comes in: who began it. Goes out: the stream for each thing that is to be said. Never here: what is said,
//! and the table of all sessions.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Target;
use super::bridged::Bridged;
use super::budget::Budget;
use super::members::Members;
use super::outbox::{Matter, Outbox};
use super::own::Own;
use super::questions::Questions;
use super::refusal::{INVALID_REQUEST, Refusal};
use crate::wire::{Message, Principal};

/// In one session at once.
const MOST_CALLS: usize = 128;

/// The stream that belongs to no call.
pub(crate) const GENERAL: u64 = 0;

/// How the client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Streamable,
    /// One stream carries everything to the client, and the session ends with it.
    OldSse,
}

/// Which process answers.
pub(crate) enum Link {
    /// One that is shared, or many.
    Shared(Members),
    /// One for this client alone, which may ask it back.
    Own(Own),
    /// A server of the newer era, whose questions stand in its results.
    Bridged(Bridged),
    /// All servers, whose questions come from processes of this client's.
    Company(Members, Bridged),
}

pub(crate) struct Greeted {
    pub(crate) version: String,
    pub(crate) link: Link,
}

pub(crate) struct Session {
    id: Arc<str>,
    target: Target,
    principal: Principal,
    way: Way,
    greeted: OnceLock<Greeted>,
    general: Outbox,
    /// On which the client listens.
    streams: watch::Sender<usize>,
    calls: Mutex<Calls>,
    pub(crate) questions: Questions,
    ended: CancellationToken,
}

#[derive(Default)]
struct Calls {
    last_stream: u64,
    going: Vec<Going>,
}

struct Going {
    id: Box<str>,
    outbox: Outbox,
    takes_events: bool,
    cancelled: CancellationToken,
}

impl Session {
    pub(crate) fn new(
        id: Arc<str>,
        target: Target,
        principal: Principal,
        way: Way,
        budget: &Budget,
    ) -> Self {
        Self {
            id,
            target,
            general: Outbox::of(budget.of(principal.clone())),
            principal,
            way,
            greeted: OnceLock::new(),
            streams: watch::Sender::new(0),
            calls: Mutex::default(),
            questions: Questions::default(),
            ended: CancellationToken::new(),
        }
    }

    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn principal(&self) -> Principal {
        self.principal.clone()
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    pub(crate) fn general(&self) -> &Outbox {
        &self.general
    }

    pub(crate) fn is_for(&self, target: &Target, principal: Option<&str>) -> bool {
        self.target == *target && self.principal.as_deref() == principal
    }

    pub(crate) fn greeted(&self) -> Option<&Greeted> {
        self.greeted.get()
    }

    /// Whether this is the first greeting.
    pub(crate) fn greet(&self, greeted: Greeted) -> bool {
        self.greeted.set(greeted).is_ok()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many streams the client listens on.
    pub(crate) fn streams(&self) -> watch::Receiver<usize> {
        self.streams.subscribe()
    }

    /// The client listens until the guard is dropped.
    pub(crate) fn listens(&self) -> Listens {
        self.streams.send_modify(|count| *count += 1);
        Listens(self.streams.clone())
    }

    pub(crate) fn next_stream(&self) -> u64 {
        let mut calls = self.calls();
        calls.last_stream += 1;
        calls.last_stream
    }

    /// The call is known until what comes back is dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &RawValue,
        outbox: &Outbox,
        takes_events: bool,
    ) -> Result<Call, Refusal> {
        let mut calls = self.calls();
        if calls.going.iter().any(|going| *going.id == *id.get()) {
            let text = "a request with this id is going on already; use each id once";
            return Err(Refusal::new(INVALID_REQUEST, text));
        }
        if calls.going.len() >= MOST_CALLS {
            let text = format!("{MOST_CALLS} requests of this session are going on; wait for some");
            return Err(Refusal::new(INVALID_REQUEST, text));
        }
        let cancelled = self.ended.child_token();
        calls.going.push(Going {
            id: id.get().into(),
            outbox: outbox.clone(),
            takes_events,
            cancelled: cancelled.clone(),
        });
        drop(calls);
        Ok(Call {
            session: Arc::clone(self),
            id: id.get().into(),
            cancelled,
        })
    }

    /// As the client asked for. Answers to it are nobody's any more.
    pub(crate) fn cancel(&self, id: &RawValue) {
        let calls = self.calls();
        if let Some(going) = calls.going.iter().find(|going| *going.id == *id.get()) {
            going.cancelled.cancel();
        }
    }

    /// What the server says while calls go on most likely belongs to the last of them.
    fn current(&self) -> Outbox {
        let calls = self.calls();
        let open = |going: &&Going| going.takes_events && !going.outbox.is_abandoned();
        let last = calls.going.iter().rev().find(open);
        last.map_or_else(|| self.general.clone(), |going| going.outbox.clone())
    }

    /// News of the server's.
    pub(crate) fn tell(&self, message: &Message) {
        let is_for_anybody = matches!(
            message.method(),
            Some(
                "notifications/tools/list_changed"
                    | "notifications/prompts/list_changed"
                    | "notifications/resources/list_changed"
                    | "notifications/resources/updated"
            )
        );
        if is_for_anybody {
            self.general.push(Matter::News, message.json());
        } else {
            self.current().push(Matter::News, message.json());
        }
    }

    /// A question of the server's. Whether the client can be asked one more.
    pub(crate) fn ask(&self, message: &Message) -> bool {
        let stream = self.current();
        let Some(id) = message.id().filter(|_| !stream.is_overfull()) else {
            return false;
        };
        if !self.questions.ask(id) {
            return false;
        }
        let is_asked = stream.push(Matter::Ask, message.json());
        if !is_asked {
            self.questions.settle(id);
        }
        is_asked
    }

    /// Calls are cancelled, streams are over; what the session holds goes with its last call.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        self.general.close();
    }
}

/// See [`Session::listens`]. A stream that nobody reads to its end does not hold on to the session.
pub(crate) struct Listens(watch::Sender<usize>);

impl Drop for Listens {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// See [`Session::begin`].
pub(crate) struct Call {
    session: Arc<Session>,
    id: Box<str>,
    cancelled: CancellationToken,
}

impl Call {
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = self.session.calls();
        calls.going.retain(|going| *going.id != *self.id);
    }
}
