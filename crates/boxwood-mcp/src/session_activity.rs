//! Tracks the use of MCP sessions, to find idle ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::transport::streamable_http_server::SessionId;
use tokio::time::Instant;

use crate::{OnDrop, lock};

/// The use of all sessions. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct SessionActivity {
    sessions: Arc<Mutex<HashMap<SessionId, Use>>>,
}

struct Use {
    last: Instant,
    /// Running tool calls.
    calls: usize,
    /// Open event streams.
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

impl SessionActivity {
    pub(crate) fn opened(&self, id: SessionId) {
        let usage = Use {
            last: Instant::now(),
            calls: 0,
            streams: 0,
        };
        lock(&self.sessions).insert(id, usage);
    }

    pub(crate) fn closed(&self, id: &str) {
        lock(&self.sessions).remove(id);
    }

    pub(crate) fn touch(&self, id: &str) {
        if let Some(usage) = lock(&self.sessions).get_mut(id) {
            usage.last = Instant::now();
        }
    }

    /// Marks the session as in use until the guard is dropped.
    pub(crate) fn hold(&self, id: &str, kind: Kind) -> OnDrop<impl FnOnce() + use<>> {
        if let Some(usage) = lock(&self.sessions).get_mut(id) {
            *usage.count(kind) += 1;
        }
        let (sessions, id) = (Arc::clone(&self.sessions), SessionId::from(id));
        OnDrop::new(move || {
            if let Some(usage) = lock(&sessions).get_mut(&id) {
                let count = usage.count(kind);
                *count = count.saturating_sub(1);
                usage.last = Instant::now();
            }
        })
    }

    /// Sessions that were idle for longer than this.
    pub(crate) fn idle(&self, longer_than: Duration) -> Vec<SessionId> {
        let sessions = lock(&self.sessions);
        let idle = sessions
            .iter()
            .filter(|(_, usage)| usage.is_idle(longer_than));
        idle.map(|(id, _)| Arc::clone(id)).collect()
    }

    pub(crate) fn is_idle(&self, id: &str, longer_than: Duration) -> bool {
        let sessions = lock(&self.sessions);
        sessions
            .get(id)
            .is_some_and(|usage| usage.is_idle(longer_than))
    }

    pub(crate) fn is_full(&self, max: usize) -> bool {
        lock(&self.sessions).len() >= max
    }

    /// The session to evict first, of those for which `may_evict` returns true: no running call, preferably no
    /// open stream, and idle for the longest time.
    pub(crate) fn least_active(&self, may_evict: impl Fn(&str) -> bool) -> Option<SessionId> {
        let sessions = lock(&self.sessions);
        let without_calls = sessions
            .iter()
            .filter(|(id, usage)| usage.calls == 0 && may_evict(id));
        without_calls
            .min_by_key(|(_, usage)| (usage.streams > 0, usage.last))
            .map(|(id, _)| Arc::clone(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_session_in_use_is_never_idle() {
        let activity = SessionActivity::default();
        for id in ["calls", "waits", "idle"] {
            activity.opened(id.into());
        }
        let call = activity.hold("calls", Kind::Call);
        let _stream = activity.hold("waits", Kind::Stream);
        tokio::time::advance(2 * MINUTE).await;
        assert_eq!(activity.idle(MINUTE), ["idle".into()]);
        drop(call);
        assert_eq!(activity.idle(MINUTE), ["idle".into()]);
        tokio::time::advance(2 * MINUTE).await;
        assert_eq!(activity.idle(MINUTE).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_active_session_is_evicted_and_never_a_busy_one() {
        let activity = SessionActivity::default();
        for id in ["busy", "waits", "old", "young"] {
            activity.opened(id.into());
            tokio::time::advance(MINUTE).await;
        }
        let _call = activity.hold("busy", Kind::Call);
        let _stream = activity.hold("waits", Kind::Stream);
        for expected in ["old", "young", "waits"] {
            assert_eq!(activity.least_active(|_| true).as_deref(), Some(expected));
            activity.closed(expected);
        }
        assert_eq!(activity.least_active(|_| true), None);
    }
}
