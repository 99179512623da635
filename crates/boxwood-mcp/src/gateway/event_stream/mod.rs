//! A stream of messages to one client, which can be resumed after a lost connection.
//!
//! Events are numbered and read by one reader at a time. A slow or missing reader loses the oldest
//! notifications; requests and responses are kept as long as the stream.

pub(crate) mod budget;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use crate::gateway::event_stream::budget::{BufferedMessage, ClientBudget};
use crate::lock;
use crate::wire::Message;

/// Limits of one stream, read and unread events together.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Limits of unread requests and responses.
const MAX_BACKLOG_BYTES: usize = 32 * 1024 * 1024;
const MAX_UNREAD: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// May be dropped: progress, logs, list changes.
    Notification,
    /// A request of the server, which waits for the client.
    Request,
    /// A response that the client waits for.
    Response,
}

pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) kind: EventKind,
    /// Without line breaks.
    pub(crate) message: BufferedMessage,
    /// Keeps a read event for clients that resume the stream. Set when the event is read.
    replay: Option<OwnedSemaphorePermit>,
}

impl Event {
    /// A copy for the reader. What stays in the stream no longer counts as unread.
    fn handed_out(&mut self) -> Self {
        Self {
            number: self.number,
            kind: self.kind,
            message: self.message.handed_out(),
            replay: None,
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventStream {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    changed: Notify,
    client_budget: ClientBudget,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Resumable,
    /// Read events are removed, so the stream cannot be resumed.
    ReadOnce,
    /// For a client that does not accept events.
    ResponseOnly,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    bytes: usize,
    /// Number of the last event, starting at 1.
    last: u64,
    /// Events up to this number were read.
    read: u64,
    /// The current reader; earlier ones end.
    reader: u64,
    readers: usize,
    closed_at: Option<Instant>,
}

/// What a stream contains before anything was sent to the client.
pub(crate) enum FirstOutput {
    /// The stream is closed and contains only the response.
    Response(BufferedMessage),
    /// Other events came first, or there is no response.
    Stream,
}

impl EventStream {
    /// Buffered bytes count against the client's budget.
    pub(crate) fn new(client_budget: ClientBudget, mode: Mode) -> Self {
        let inner = Inner {
            state: Mutex::default(),
            changed: Notify::new(),
            client_budget,
            mode,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn accepts_events(&self) -> bool {
        self.inner.mode != Mode::ResponseOnly
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.inner.state)
    }

    /// Returns false if the stream is closed or the client's budget is exhausted.
    pub(crate) fn push(&self, kind: EventKind, json: Bytes) -> bool {
        let client_budget = &self.inner.client_budget;
        let message = match kind {
            EventKind::Notification => client_budget.reserve_notification(json),
            EventKind::Request | EventKind::Response => client_budget.reserve(json),
        };
        message.is_some_and(|message| self.put(kind, message))
    }

    /// Always adds a response: an error if the budget is exhausted.
    pub(crate) fn answer(&self, answer: &Message) {
        let message = self.inner.client_budget.reserve_response(answer);
        self.put(EventKind::Response, message);
    }

    fn put(&self, kind: EventKind, message: BufferedMessage) -> bool {
        let mut state = self.state();
        if state.closed_at.is_some() {
            return false;
        }
        state.last += 1;
        state.bytes += message.json.len();
        let number = state.last;
        state.events.push_back(Event {
            number,
            kind,
            message,
            replay: None,
        });
        state.drop_excess();
        drop(state);
        self.inner.changed.notify_waiters();
        true
    }

    pub(crate) fn close(&self) {
        self.state().closed_at.get_or_insert_with(Instant::now);
        self.inner.changed.notify_waiters();
    }

    /// Time since the stream was closed.
    pub(crate) fn closed_for(&self) -> Option<Duration> {
        self.state().closed_at.map(|at| at.elapsed())
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// The reader is far behind with requests and responses, or the client's budget is exhausted.
    pub(crate) fn is_backlogged(&self) -> bool {
        let (unread, bytes) = self.state().unread();
        unread >= MAX_UNREAD || bytes > MAX_BACKLOG_BYTES || self.inner.client_budget.is_exhausted()
    }

    /// The reader is gone, or the client left before it started to read.
    pub(crate) fn is_abandoned(&self) -> bool {
        let state = self.state();
        state.reader > 0 && state.readers == 0
    }

    /// The client left before it started to read.
    pub(crate) fn abandon(&self) {
        self.state().reader += 1;
    }

    /// Waits until it is known whether the HTTP response is a single message or a stream.
    pub(crate) async fn first_output(&self) -> FirstOutput {
        self.wait(|state| {
            let is_closed = state.closed_at.is_some();
            match state.events.front_mut() {
                None => is_closed.then_some(FirstOutput::Stream),
                Some(event) if event.kind == EventKind::Response => {
                    is_closed.then(|| FirstOutput::Response(event.message.handed_out()))
                }
                Some(_) => Some(FirstOutput::Stream),
            }
        })
        .await
    }

    /// Waits until `found` returns something. It is called again after each change.
    async fn wait<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let result = found(&mut self.state());
            if let Some(result) = result {
                return result;
            }
            changed.await;
        }
    }

    /// For a resumed stream. `None` if the event does not exist yet, because the number then belongs to
    /// another stream.
    pub(crate) fn reader_after(&self, number: u64) -> Option<Reader> {
        let exists = number <= self.state().last;
        exists.then(|| self.reader(Some(number)))
    }

    /// Takes over the stream after this event, or after the last event that was read.
    pub(crate) fn reader(&self, after: Option<u64>) -> Reader {
        let mut state = self.state();
        state.reader += 1;
        state.readers += 1;
        let reader = Reader {
            event_stream: self.clone(),
            id: state.reader,
            at: after.unwrap_or(state.read),
        };
        drop(state);
        self.inner.changed.notify_waiters();
        reader
    }
}

impl State {
    fn remove(&mut self, index: usize) {
        if let Some(event) = self.events.remove(index) {
            self.bytes -= event.message.json.len();
        }
    }

    /// Index of the first event after this number.
    fn after(&self, number: u64) -> usize {
        self.events.partition_point(|event| event.number <= number)
    }

    /// Number and bytes of the unread requests and responses.
    fn unread(&self) -> (usize, usize) {
        let unread = self.events.range(self.after(self.read)..);
        let waiting = unread.filter(|event| event.kind != EventKind::Notification);
        waiting.fold((0, 0), |(count, bytes), event| {
            (count + 1, bytes + event.message.json.len())
        })
    }

    /// Drops read events and notifications until the limits are met. The newest event always stays.
    fn drop_excess(&mut self) {
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let end = self.events.len().saturating_sub(1);
            let read = self.read;
            let may_drop =
                |event: &Event| event.number <= read || event.kind == EventKind::Notification;
            let Some(index) = self.events.range(..end).position(may_drop) else {
                return;
            };
            self.remove(index);
        }
    }
}

/// See [`EventStream::reader`].
pub(crate) struct Reader {
    event_stream: EventStream,
    /// Equals `State::reader` until another reader takes over.
    id: u64,
    /// Number of the last event that was read.
    pub(crate) at: u64,
}

impl Reader {
    /// `None` if the stream is closed or another reader took over.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let event_stream = self.event_stream.clone();
        let inner = &event_stream.inner;
        let next = event_stream.wait(|state| {
            if state.reader != self.id {
                return Some(None);
            }
            let index = state.after(self.at);
            let Some(next) = state.events.get_mut(index) else {
                return state.closed_at.is_some().then_some(None);
            };
            let event = next.handed_out();
            if next.replay.is_none() && inner.mode != Mode::ReadOnce {
                next.replay = inner.client_budget.reserve_replay(next.message.json.len());
            }
            let is_kept = next.replay.is_some();
            self.at = event.number;
            state.read = state.read.max(event.number);
            if !is_kept {
                state.remove(index);
            }
            state.drop_excess();
            Some(Some(event))
        });
        next.await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.event_stream.state();
        state.readers = state.readers.saturating_sub(1);
    }
}

#[cfg(test)]
impl Default for EventStream {
    fn default() -> Self {
        Self::new(ClientBudget::default(), Mode::Resumable)
    }
}

#[cfg(test)]
mod tests;
