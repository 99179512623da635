//! Whether anybody uses a connection. What we ask for our own sake does not count.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) struct Usage {
    state: Mutex<State>,
}

struct State {
    calls: usize,
    last: Instant,
    is_kept: bool,
    /// When it was last let go.
    kept: Instant,
}

impl Usage {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let state = State {
            calls: 0,
            last: now,
            is_kept: false,
            kept: now,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// A call, for as long as it is held.
    pub(crate) fn call(&self) -> InUse<'_> {
        self.lock().calls += 1;
        InUse { usage: self }
    }

    pub(crate) fn touch(&self) {
        self.lock().last = Instant::now();
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.lock().calls > 0
    }

    /// Zero while a call goes on.
    pub(crate) fn idle_for(&self) -> Duration {
        let state = self.lock();
        match state.calls {
            0 => state.last.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Who only listens uses nothing.
    pub(crate) fn keep(&self, is_kept: bool) {
        let mut state = self.lock();
        if state.is_kept && !is_kept {
            state.kept = Instant::now();
        }
        state.is_kept = is_kept;
    }

    /// Zero while a call goes on or somebody listens.
    pub(crate) fn unwanted_for(&self) -> Duration {
        let state = self.lock();
        if state.calls > 0 || state.is_kept {
            return Duration::ZERO;
        }
        state.last.max(state.kept).elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct InUse<'a> {
    usage: &'a Usage,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut state = self.usage.lock();
        state.calls = state.calls.saturating_sub(1);
        state.last = Instant::now();
    }
}
