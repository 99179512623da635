//! Tells whoever watches what happened.

use boxwood_api::{Event, EventKind, SessionId};
use boxwood_backend::Progress;
use jiff::Timestamp;
use tokio::sync::broadcast;

/// A watcher that falls this far behind misses events and is told so by the channel; nobody waits
/// for it.
const KEPT_EVENTS: usize = 1024;

#[derive(Clone)]
pub(crate) struct Events(broadcast::Sender<Event>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(KEPT_EVENTS))
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    /// For a backend that has to fetch an image before it can start this session's box.
    pub(crate) fn progress_of(&self, session: &SessionId) -> Progress {
        let (events, session) = (self.clone(), session.clone());
        Progress::to(move |news| events.emit(&session, || EventKind::ImagePull(news)))
    }

    /// Costs nothing while nobody watches.
    pub(crate) fn emit(&self, session: &SessionId, kind: impl FnOnce() -> EventKind) {
        if self.0.receiver_count() == 0 {
            return;
        }
        // An error means that the last watcher left just now.
        let _ = self.0.send(Event {
            at: Timestamp::now(),
            session_id: session.clone(),
            kind: kind(),
        });
    }
}
