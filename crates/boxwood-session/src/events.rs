//! Sends events to watchers.

use boxwood_api::{Event, EventKind, SessionId};
use boxwood_backend::Progress;
use jiff::Timestamp;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::session::Session;
use crate::session::access::Access;

/// A watcher that falls behind this far misses events and gets an error from the channel. Senders do
/// not wait.
const KEPT_EVENTS: usize = 1024;

#[derive(Clone)]
pub(crate) struct Events(broadcast::Sender<Published>);

#[derive(Clone)]
struct Published {
    event: Event,
    /// Whether the event comes from inside the box of a hosted server.
    is_hosted: bool,
}

/// Events that the watcher may see.
pub struct EventStream {
    receiver: broadcast::Receiver<Published>,
    access: Access,
}

impl EventStream {
    /// Cancel-safe.
    pub async fn recv(&mut self) -> Result<Event, RecvError> {
        loop {
            let published = self.receiver.recv().await?;
            if self.includes(&published) {
                return Ok(published.event);
            }
        }
    }

    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        loop {
            let published = self.receiver.try_recv()?;
            if self.includes(&published) {
                return Ok(published.event);
            }
        }
    }

    fn includes(&self, published: &Published) -> bool {
        !published.is_hosted || self.access.includes(true)
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(KEPT_EVENTS))
    }

    pub(crate) fn subscribe(&self, access: Access) -> EventStream {
        EventStream {
            receiver: self.0.subscribe(),
            access,
        }
    }

    /// For a backend that pulls an image before it starts the box of this session.
    pub(crate) fn progress_of(&self, session: &SessionId) -> Progress {
        let (events, session) = (self.clone(), session.clone());
        Progress::to(move |progress| events.emit(&session, || EventKind::ImagePull(progress)))
    }

    /// An event of the session itself. Costs nothing without watchers.
    pub(crate) fn emit(&self, session: &SessionId, kind: impl FnOnce() -> EventKind) {
        self.send(session, false, kind);
    }

    /// An event from inside the box: commands and processes.
    pub(crate) fn emit_inside(&self, session: &Session, kind: impl FnOnce() -> EventKind) {
        self.send(&session.id, session.spec.is_hosted(), kind);
    }

    fn send(&self, session: &SessionId, is_hosted: bool, kind: impl FnOnce() -> EventKind) {
        if self.0.receiver_count() == 0 {
            return;
        }
        // Fails if the last watcher has just unsubscribed.
        let _ = self.0.send(Published {
            event: Event {
                at: Timestamp::now(),
                session_id: session.clone(),
                kind: kind(),
            },
            is_hosted,
        });
    }
}
