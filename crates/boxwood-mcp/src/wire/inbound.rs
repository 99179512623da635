//! Messages of the server that belong to no call, for several receivers.
//!
//! A slow receiver loses the oldest messages and gets their number. Without receivers nothing is kept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::audience::Audience;
use super::message::{Kind, Message};

const MOST: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InboundFilter {
    Notifications,
    /// Also requests of the server, which the receiver must answer.
    All,
}

#[derive(Debug)]
pub(crate) enum InboundEvent {
    Message(Arc<Message>),
    /// Number of messages that were dropped because the receiver was too slow.
    Lagged(u64),
    Closed,
}

/// A receiver. Dropping it unsubscribes.
pub(crate) struct Inbound {
    ring: Arc<InboundBuffer>,
    key: u64,
    audience: Audience,
}

impl Inbound {
    /// The audience of the last message.
    pub(crate) fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> InboundEvent {
        loop {
            let news = self.ring.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some((heard, audience)) = self.ring.take(self.key) {
                self.audience = audience;
                return heard;
            }
            news.await;
        }
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        let mut state = self.ring.lock();
        state.listeners.remove(&self.key);
        state.forget_heard();
    }
}

pub(crate) struct InboundBuffer {
    most_bytes: usize,
    state: Mutex<State>,
    news: Notify,
}

/// Whether a message has receivers, and the requests that were dropped for it.
pub(crate) struct Pushed {
    pub(crate) is_heard: bool,
    pub(crate) lost_requests: Vec<Arc<Message>>,
}

#[derive(Default)]
struct State {
    kept: VecDeque<(Arc<Message>, Audience)>,
    /// Number of the first buffered message.
    first: u64,
    bytes: usize,
    listeners: HashMap<u64, Listener>,
    next_key: u64,
    has_ended: bool,
}

struct Listener {
    hears: InboundFilter,
    at: u64,
    missed: u64,
}

impl Listener {
    fn wants(&self, message: &Message) -> bool {
        self.hears == InboundFilter::All || message.kind() == Kind::Notification
    }
}

impl InboundBuffer {
    pub(crate) fn new(most_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            most_bytes,
            state: Mutex::default(),
            news: Notify::new(),
        })
    }

    /// Receives messages from now on.
    pub(crate) fn listen(self: &Arc<Self>, hears: InboundFilter) -> Inbound {
        let mut state = self.lock();
        let key = state.next_key;
        state.next_key += 1;
        let at = state.end();
        let missed = 0;
        state.listeners.insert(key, Listener { hears, at, missed });
        Inbound {
            ring: Arc::clone(self),
            key,
            audience: Audience::default(),
        }
    }

    pub(crate) fn push(&self, message: Message, audience: Audience) -> Pushed {
        let mut state = self.lock();
        let is_heard = state.listeners.values().any(|one| one.wants(&message));
        let mut lost_requests = Vec::new();
        if is_heard {
            state.bytes += message.size();
            state.kept.push_back((Arc::new(message), audience));
            while state.kept.len() > MOST || (state.bytes > self.most_bytes && state.kept.len() > 1)
            {
                lost_requests.extend(state.lose_oldest());
            }
        }
        drop(state);
        self.news.notify_waiters();
        Pushed {
            is_heard,
            lost_requests,
        }
    }

    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.news.notify_waiters();
    }

    fn take(&self, key: u64) -> Option<(InboundEvent, Audience)> {
        let mut state = self.lock();
        let state = &mut *state;
        let listener = state.listeners.get_mut(&key)?;
        if listener.missed > 0 {
            let missed = InboundEvent::Lagged(std::mem::take(&mut listener.missed));
            return Some((missed, Audience::None));
        }
        let skipped = usize::try_from(listener.at - state.first).unwrap_or(usize::MAX);
        let mut found = None;
        for (message, audience) in state.kept.iter().skip(skipped) {
            listener.at += 1;
            if listener.wants(message) {
                found = Some((InboundEvent::Message(Arc::clone(message)), audience.clone()));
                break;
            }
        }
        state.forget_heard();
        let ended = (InboundEvent::Closed, Audience::None);
        found.or(state.has_ended.then_some(ended))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    fn pop(&mut self) -> Option<Arc<Message>> {
        let (oldest, _) = self.kept.pop_front()?;
        self.first += 1;
        self.bytes -= oldest.size();
        Some(oldest)
    }

    /// Drops the oldest message. Returns it if it is a request that no receiver has taken.
    fn lose_oldest(&mut self) -> Option<Arc<Message>> {
        let at = self.first;
        let oldest = self.pop()?;
        let mut is_taken = false;
        for listener in self.listeners.values_mut() {
            let wants = listener.wants(&oldest);
            if listener.at <= at {
                listener.at = at + 1;
                listener.missed += u64::from(wants);
            } else {
                is_taken |= wants;
            }
        }
        (oldest.kind() == Kind::Request && !is_taken).then_some(oldest)
    }

    fn forget_heard(&mut self) {
        let end = self.end();
        let slowest = self.listeners.values().map(|one| one.at).min();
        while self.first < slowest.unwrap_or(end) {
            if self.pop().is_none() {
                break;
            }
        }
    }
}
