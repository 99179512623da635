//! Whether the backend works, from the last time somebody looked.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use boxwood_backend::{Backend, Outcome, StartError};
use tokio::time::Instant;

use crate::activity::lock;

/// A probe tries every mechanism by using it, so an answer serves for a while.
const FRESH: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Default)]
struct Seen {
    /// Unknown counts as not available: nothing has shown that it works.
    works: bool,
    at: Option<Instant>,
    probing: bool,
}

pub(crate) struct Availability {
    backend: Arc<dyn Backend>,
    seen: Mutex<Seen>,
}

impl Availability {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            seen: Mutex::default(),
        }
    }

    pub(crate) fn works(&self) -> bool {
        lock(&self.seen).works
    }

    /// True once per stale answer, for the one who then probes.
    pub(crate) fn wants_probe(&self) -> bool {
        let mut seen = lock(&self.seen);
        let stale = seen.at.is_none_or(|at| at.elapsed() > FRESH);
        let wanted = stale && !seen.probing;
        seen.probing |= wanted;
        wanted
    }

    pub(crate) async fn probe(&self) -> bool {
        let works = match self.backend.probe().await {
            Ok(probe) => !probe
                .findings
                .iter()
                .any(|finding| matches!(finding.outcome, Outcome::Fatal { .. })),
            Err(error) => {
                tracing::warn!(%error, "the backend could not be probed");
                false
            }
        };
        self.record(works);
        works
    }

    pub(crate) fn seen_working(&self) {
        self.record(true);
    }

    pub(crate) fn seen_failing(&self, error: &StartError) {
        if matches!(error, StartError::Unavailable { .. }) {
            self.record(false);
        }
    }

    fn record(&self, works: bool) {
        *lock(&self.seen) = Seen {
            works,
            at: Some(Instant::now()),
            probing: false,
        };
    }
}
