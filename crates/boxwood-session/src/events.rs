//! Tells whoever watches what happened.

use boxwood_api::{Event, EventKind, SessionId};
use boxwood_backend::Progress;
use jiff::Timestamp;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::reach::Reach;
use crate::session::Session;

/// A watcher that falls this far behind misses events and is told so by the channel; nobody waits
/// for it.
const KEPT_EVENTS: usize = 1024;

#[derive(Clone)]
pub(crate) struct Events(broadcast::Sender<News>);

#[derive(Clone)]
struct News {
    event: Event,
    /// Of what goes on inside a hosted server's box.
    is_hostings: bool,
}

/// Events as they happen, as far as whoever watches may know of them.
pub struct Watching {
    news: broadcast::Receiver<News>,
    reach: Reach,
}

impl Watching {
    /// May be dropped while it waits; nothing is lost by that.
    pub async fn recv(&mut self) -> Result<Event, RecvError> {
        loop {
            let news = self.news.recv().await?;
            if let Some(event) = self.told(news) {
                return Ok(event);
            }
        }
    }

    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        loop {
            let news = self.news.try_recv()?;
            if let Some(event) = self.told(news) {
                return Ok(event);
            }
        }
    }

    fn told(&self, news: News) -> Option<Event> {
        let is_told = !news.is_hostings || self.reach.includes(true);
        is_told.then_some(news.event)
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(KEPT_EVENTS))
    }

    pub(crate) fn subscribe(&self, reach: Reach) -> Watching {
        Watching {
            news: self.0.subscribe(),
            reach,
        }
    }

    /// For a backend that has to fetch an image before it can start this session's box.
    pub(crate) fn progress_of(&self, session: &SessionId) -> Progress {
        let (events, session) = (self.clone(), session.clone());
        Progress::to(move |news| events.emit(&session, || EventKind::ImagePull(news)))
    }

    /// Of the session as a whole. Costs nothing while nobody watches.
    pub(crate) fn emit(&self, session: &SessionId, kind: impl FnOnce() -> EventKind) {
        self.send(session, false, kind);
    }

    /// Of what goes on in it: commands and processes.
    pub(crate) fn emit_inside(&self, session: &Session, kind: impl FnOnce() -> EventKind) {
        self.send(&session.id, session.spec.is_hosted(), kind);
    }

    fn send(&self, session: &SessionId, is_hostings: bool, kind: impl FnOnce() -> EventKind) {
        if self.0.receiver_count() == 0 {
            return;
        }
        // An error means that the last watcher left just now.
        let _ = self.0.send(News {
            event: Event {
                at: Timestamp::now(),
                session_id: session.clone(),
                kind: kind(),
            },
            is_hostings,
        });
    }
}
