//! Who uses which MCP session, so that an unused one can go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::transport::streamable_http_server::SessionId;
use tokio::time::Instant;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Attendance {
    sessions: Arc<Mutex<HashMap<SessionId, Use>>>,
}

struct Use {
    last: Instant,
    /// Tool calls that are going on.
    calls: usize,
    /// Streams on which the client waits for news.
    streams: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Call,
    Stream,
}

impl Use {
    fn is_idle(&self, longer_than: Duration) -> bool {
        self.calls == 0 && self.streams == 0 && self.last.elapsed() > longer_than
    }

    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Call => &mut self.calls,
            Kind::Stream => &mut self.streams,
        }
    }
}

impl Attendance {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Use>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn opened(&self, id: SessionId) {
        let unused = Use {
            last: Instant::now(),
            calls: 0,
            streams: 0,
        };
        self.sessions().insert(id, unused);
    }

    pub(crate) fn closed(&self, id: &str) {
        self.sessions().remove(id);
    }

    pub(crate) fn touch(&self, id: &str) {
        if let Some(found) = self.sessions().get_mut(id) {
            found.last = Instant::now();
        }
    }

    /// In use until the guard is dropped.
    pub(crate) fn hold(&self, id: &str, kind: Kind) -> Held {
        if let Some(found) = self.sessions().get_mut(id) {
            *found.count(kind) += 1;
        }
        Held {
            attendance: self.clone(),
            id: id.into(),
            kind,
        }
    }

    /// Nobody has used these for so long.
    pub(crate) fn idle(&self, longer_than: Duration) -> Vec<SessionId> {
        let sessions = self.sessions();
        let idle = sessions
            .iter()
            .filter(|(_, found)| found.is_idle(longer_than));
        idle.map(|(id, _)| Arc::clone(id)).collect()
    }

    /// Whether nobody has used this one for so long.
    pub(crate) fn is_idle(&self, id: &str, longer_than: Duration) -> bool {
        let sessions = self.sessions();
        sessions
            .get(id)
            .is_some_and(|found| found.is_idle(longer_than))
    }

    pub(crate) fn is_full(&self, most: usize) -> bool {
        self.sessions().len() >= most
    }

    /// The one that is missed least: no call is going on in it, and better nobody waits on it.
    pub(crate) fn least_missed(&self) -> Option<SessionId> {
        self.least_missed_of(|_| true)
    }

    /// The same among those that may go.
    pub(crate) fn least_missed_of(&self, may_go: impl Fn(&str) -> bool) -> Option<SessionId> {
        let sessions = self.sessions();
        let without_calls = sessions
            .iter()
            .filter(|(id, found)| found.calls == 0 && may_go(id));
        without_calls
            .min_by_key(|(_, found)| (found.streams > 0, found.last))
            .map(|(id, _)| Arc::clone(id))
    }
}

/// See [`Attendance::hold`].
pub(crate) struct Held {
    attendance: Attendance,
    id: SessionId,
    kind: Kind,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(found) = self.attendance.sessions().get_mut(&self.id) {
            let count = found.count(self.kind);
            *count = count.saturating_sub(1);
            found.last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_session_in_use_is_never_idle() {
        let attendance = Attendance::default();
        for id in ["calls", "waits", "idle"] {
            attendance.opened(id.into());
        }
        let call = attendance.hold("calls", Kind::Call);
        let _stream = attendance.hold("waits", Kind::Stream);
        tokio::time::advance(2 * MINUTE).await;
        assert_eq!(attendance.idle(MINUTE), ["idle".into()]);
        drop(call);
        assert_eq!(attendance.idle(MINUTE), ["idle".into()]);
        tokio::time::advance(2 * MINUTE).await;
        assert_eq!(attendance.idle(MINUTE).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_missed_goes_first_and_never_a_busy_one() {
        let attendance = Attendance::default();
        for id in ["busy", "waits", "old", "young"] {
            attendance.opened(id.into());
            tokio::time::advance(MINUTE).await;
        }
        let _call = attendance.hold("busy", Kind::Call);
        let _stream = attendance.hold("waits", Kind::Stream);
        for expected in ["old", "young", "waits"] {
            assert_eq!(attendance.least_missed().as_deref(), Some(expected));
            attendance.closed(expected);
        }
        assert_eq!(attendance.least_missed(), None);
    }
}
