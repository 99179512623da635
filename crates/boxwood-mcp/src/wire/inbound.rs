//! Messages of the server that belong to no call, for several receivers.
//!
//! Each receiver has a bounded queue. If it is full, or the queued messages have too many bytes, new messages
//! are dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::audience::Audience;
use super::message::{Kind, Message};
use crate::lock;

const MAX_QUEUED: usize = 256;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InboundFilter {
    Notifications,
    /// Notifications that are forwarded to clients. The response of a call waits until earlier ones were forwarded.
    Forwarded,
    /// Forwarded notifications, and requests of the server, which the receiver must respond to.
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
    queue: mpsc::Receiver<Item>,
    dropped: Arc<AtomicU64>,
    /// The audience of the last message.
    pub(crate) audience: Audience,
}

enum Item {
    Message(Arc<Queued>),
    /// The receiver drops it after it has handled all earlier messages.
    Flush {
        _done: mpsc::Sender<()>,
    },
}

struct Queued {
    message: Arc<Message>,
    audience: Audience,
    _room: OwnedSemaphorePermit,
}

impl Inbound {
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> InboundEvent {
        loop {
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                return InboundEvent::Lagged(dropped);
            }
            match self.queue.recv().await {
                Some(Item::Message(queued)) => {
                    self.audience = queued.audience.clone();
                    return InboundEvent::Message(Arc::clone(&queued.message));
                }
                Some(Item::Flush { .. }) => {}
                None => return InboundEvent::Closed,
            }
        }
    }
}

pub(crate) struct Receivers {
    /// `None` after the end of the connection.
    list: Mutex<Option<Vec<Receiver>>>,
    /// One permit per byte.
    room: Arc<Semaphore>,
    max_bytes: usize,
}

struct Receiver {
    filter: InboundFilter,
    queue: mpsc::Sender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Receiver {
    fn accepts(&self, message: &Message) -> bool {
        !self.queue.is_closed()
            && (self.filter == InboundFilter::All || message.kind() == Kind::Notification)
    }

    fn send(&self, queued: Option<Arc<Queued>>) -> bool {
        let sent = queued.is_some_and(|it| self.queue.try_send(Item::Message(it)).is_ok());
        self.dropped.fetch_add(u64::from(!sent), Ordering::Relaxed);
        sent
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Queued,
    NoReceiver,
    Dropped,
}

impl Receivers {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let max_bytes = max_bytes.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self {
            list: Mutex::new(Some(Vec::new())),
            room: Arc::new(Semaphore::new(max_bytes)),
            max_bytes,
        }
    }

    /// Receives messages from now on.
    pub(crate) fn add(&self, filter: InboundFilter) -> Inbound {
        let (sender, queue) = mpsc::channel(MAX_QUEUED);
        let dropped = Arc::<AtomicU64>::default();
        if let Some(receivers) = &mut *lock(&self.list) {
            receivers.retain(|receiver| !receiver.queue.is_closed());
            receivers.push(Receiver {
                filter,
                queue: sender,
                dropped: Arc::clone(&dropped),
            });
        }
        Inbound {
            queue,
            dropped,
            audience: Audience::default(),
        }
    }

    pub(crate) fn push(&self, message: Message, audience: Audience) -> Pushed {
        let list = lock(&self.list);
        let receivers = list.iter().flatten();
        let receivers: Vec<_> = receivers.filter(|it| it.accepts(&message)).collect();
        if receivers.is_empty() {
            return Pushed::NoReceiver;
        }
        let bytes = u32::try_from(message.size().min(self.max_bytes)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes);
        let queued = room.ok().map(|room| {
            Arc::new(Queued {
                message: Arc::new(message),
                audience,
                _room: room,
            })
        });
        let sent = receivers
            .into_iter()
            .map(|receiver| receiver.send(queued.clone()));
        if sent.fold(false, |any, sent| any | sent) {
            Pushed::Queued
        } else {
            Pushed::Dropped
        }
    }

    /// Waits until the messages so far were handled by the receivers that forward them.
    pub(crate) async fn flush(&self) {
        let (done, mut all_done) = mpsc::channel(1);
        for receiver in lock(&self.list).iter().flatten() {
            if receiver.filter != InboundFilter::Notifications {
                // A full queue is not waited for.
                let _ = receiver.queue.try_send(Item::Flush {
                    _done: done.clone(),
                });
            }
        }
        drop(done);
        // On a timeout, the response comes before the notifications.
        let _ = timeout(FLUSH_TIMEOUT, all_done.recv()).await;
    }

    pub(crate) fn end(&self) {
        lock(&self.list).take();
    }
}
