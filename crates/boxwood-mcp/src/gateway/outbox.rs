//! One stream of messages to a client, which may come back for what it missed.
//!
//! Comes in: messages, each with how much it matters. Goes out: the same to one reader at a time, counted,
//! so that a reader can go on after any of them. Never here: HTTP. A reader that is slow or gone loses the
//! oldest of what matters least; an answer waits as long as the stream does.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::{Kept, Purse};
use super::replays::{Counted, Forgets, Replays};
use crate::wire::Message;

/// What one stream keeps, read or not.
const MOST_EVENTS: usize = 256;
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Of answers and questions that nobody has read.
const OVERFULL: usize = 32 * 1024 * 1024;
const MOST_UNREAD: usize = 512;

/// What a message is to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matter {
    /// May be lost: progress, logs, news of lists.
    News,
    /// A request of the server's: somebody waits for the client.
    Ask,
    /// What the client waits for.
    Answer,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) matter: Matter,
    /// Without line breaks.
    pub(crate) kept: Kept,
    /// Since it was read.
    replay: Option<Arc<Counted>>,
}

impl Event {
    /// What was read is kept for a reader that comes back, and takes no room from what was not.
    /// With the first copy comes how that is counted.
    fn handed_out(&mut self, replays: &Replays) -> (Self, Option<Weak<Counted>>) {
        let mut first = None;
        if self.replay.is_none() {
            let counted = replays.count(self.kept.json.len());
            first = Some(Arc::downgrade(&counted));
            self.replay = Some(counted);
        }
        let copy = Self {
            number: self.number,
            matter: self.matter,
            kept: self.kept.handed_out(),
            replay: None,
        };
        (copy, first)
    }
}

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Outbox {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
    purse: Purse,
    /// What was read is gone.
    is_passing: bool,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    bytes: usize,
    /// The number of the last event, beginning with 1.
    last: u64,
    /// Everything up to this number was given to a reader.
    read: u64,
    /// Answers and questions after that.
    unread: usize,
    unread_bytes: usize,
    /// The reader who has the stream now; an older one ends.
    reader: u64,
    readers: usize,
    closed_at: Option<Instant>,
}

/// How a stream stands before anything of it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It is over, and holds answers alone.
    Answers(Vec<Kept>),
    /// Something else came first, or the stream goes on.
    Events,
}

impl Outbox {
    /// What it keeps is its client's to read.
    pub(crate) fn of(purse: Purse) -> Self {
        let inner = Inner {
            purse,
            ..Inner::default()
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The same for a stream that no client can come back to.
    pub(crate) fn passing(purse: Purse) -> Self {
        let inner = Inner {
            purse,
            is_passing: true,
            ..Inner::default()
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was taken. A closed stream takes nothing more, nor does a client that has enough to read.
    pub(crate) fn push(&self, matter: Matter, json: Bytes) -> bool {
        let purse = &self.inner.purse;
        let kept = match matter {
            Matter::News => purse.keep_news(json),
            Matter::Ask | Matter::Answer => purse.keep(json),
        };
        kept.is_some_and(|kept| self.put(matter, kept))
    }

    /// There is always one: without room for it, one that says so.
    pub(crate) fn answer(&self, answer: &Message) {
        let kept = self.inner.purse.keep_answer(answer);
        self.put(Matter::Answer, kept);
    }

    fn put(&self, matter: Matter, kept: Kept) -> bool {
        let mut state = self.state();
        if state.closed_at.is_some() {
            return false;
        }
        state.last += 1;
        state.bytes += kept.json.len();
        if matter != Matter::News {
            state.unread += 1;
            state.unread_bytes += kept.json.len();
        }
        let number = state.last;
        state.events.push_back(Event {
            number,
            matter,
            kept,
            replay: None,
        });
        state.shed();
        drop(state);
        self.inner.changed.notify_waiters();
        true
    }

    pub(crate) fn close(&self) {
        self.state().closed_at.get_or_insert_with(Instant::now);
        self.inner.changed.notify_waiters();
    }

    /// How long it has been over, when it is.
    pub(crate) fn closed_for(&self) -> Option<Duration> {
        self.state().closed_at.map(|at| at.elapsed())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Its reader is far behind with what cannot be left out, or its client altogether.
    pub(crate) fn is_overfull(&self) -> bool {
        let state = self.state();
        let is_behind = state.unread >= MOST_UNREAD || state.unread_bytes > OVERFULL;
        drop(state);
        is_behind || self.inner.purse.is_used_up()
    }

    /// Whoever read it is gone, or whoever was going to.
    pub(crate) fn is_abandoned(&self) -> bool {
        let state = self.state();
        state.reader > 0 && state.readers == 0
    }

    pub(crate) fn abandon(&self) {
        self.state().reader += 1;
    }

    /// Waits until it is clear how the stream begins.
    pub(crate) async fn settled(&self) -> Settled {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state();
                let only_answers = state
                    .events
                    .iter()
                    .all(|event| event.matter == Matter::Answer);
                if !only_answers {
                    return Settled::Events;
                }
                if state.closed_at.is_some() {
                    return Settled::Answers(state.hand_out_answers());
                }
            }
            changed.await;
        }
    }

    /// Waits until the stream is over, and gives its answers alone.
    pub(crate) async fn answers(&self) -> Vec<Kept> {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if state.closed_at.is_some() {
                    return state.hand_out_answers();
                }
            }
            changed.await;
        }
    }

    /// For a client that comes back. `None` when there was no such event yet: it means those of another stream,
    /// and would miss as many of this one.
    pub(crate) fn reader_after(&self, number: u64) -> Option<Reader> {
        let has_been = number <= self.state().last;
        has_been.then(|| self.reader(Some(number)))
    }

    /// Takes the stream over, after the event of this number; or where the last reader stopped.
    pub(crate) fn reader(&self, after: Option<u64>) -> Reader {
        let mut state = self.state();
        state.reader += 1;
        state.readers += 1;
        let reader = Reader {
            outbox: self.clone(),
            turn: state.reader,
            at: after.unwrap_or(state.read),
        };
        drop(state);
        self.inner.changed.notify_waiters();
        reader
    }
}

impl Forgets for Inner {
    /// Only what was read.
    fn forget(&self, number: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let index = state.after(number.saturating_sub(1));
        let found = state.events.get(index);
        if number <= state.read && found.is_some_and(|event| event.number == number) {
            state.remove(index);
        }
    }
}

impl State {
    fn remove(&mut self, index: usize) {
        if let Some(gone) = self.events.remove(index) {
            self.bytes -= gone.kept.json.len();
        }
    }

    fn hand_out_answers(&mut self) -> Vec<Kept> {
        let answers = self
            .events
            .iter_mut()
            .filter(|event| event.matter == Matter::Answer);
        answers.map(|event| event.kept.handed_out()).collect()
    }

    /// Where the events begin that come after this number.
    fn after(&self, number: u64) -> usize {
        self.events.partition_point(|event| event.number <= number)
    }

    fn has_read(&mut self, number: u64) {
        let begin = self.after(self.read);
        let end = self.after(number).max(begin);
        let read = self.events.range(begin..end);
        for event in read.filter(|event| event.matter != Matter::News) {
            self.unread -= 1;
            self.unread_bytes -= event.kept.json.len();
        }
        self.read = self.read.max(number);
    }

    /// The newest always stays.
    fn shed(&mut self) {
        while self.events.len() > MOST_EVENTS || self.bytes > MOST_BYTES {
            let end = self.events.len().saturating_sub(1);
            let read = self.read;
            let loses = |event: &Event| event.number <= read || event.matter == Matter::News;
            let Some(index) = self.events.range(..end).position(loses) else {
                return;
            };
            self.remove(index);
        }
    }
}

/// See [`Outbox::reader`].
pub(crate) struct Reader {
    outbox: Outbox,
    turn: u64,
    at: u64,
}

impl Reader {
    /// `None` once the stream is over or another reads it.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let outbox = self.outbox.clone();
            let changed = outbox.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = outbox.state();
                if state.reader != self.turn {
                    return None;
                }
                let index = state.after(self.at);
                if let Some(next) = state.events.get_mut(index) {
                    let replays = outbox.inner.purse.replays();
                    let (event, counted) = next.handed_out(replays);
                    self.at = event.number;
                    state.has_read(event.number);
                    if outbox.inner.is_passing {
                        state.remove(index);
                        return Some(event);
                    }
                    state.shed();
                    drop(state);
                    if let Some(counted) = counted {
                        let stream: Arc<dyn Forgets> = Arc::<Inner>::clone(&outbox.inner);
                        replays.keep(Arc::downgrade(&stream), event.number, counted);
                    }
                    return Some(event);
                }
                if state.closed_at.is_some() {
                    return None;
                }
            }
            changed.await;
        }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.outbox.state();
        state.readers = state.readers.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
