//! Tracks the use of a connection by clients. Calls of the daemon itself do not count.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::{OnDrop, lock};

pub(crate) struct Usage {
    state: Mutex<State>,
}

struct State {
    calls: usize,
    last_used_at: Instant,
    is_listening: bool,
    /// End of the last open stream.
    stream_ended_at: Instant,
}

impl Usage {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let state = State {
            calls: 0,
            last_used_at: now,
            is_listening: false,
            stream_ended_at: now,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Counts as a call until the guard is dropped.
    pub(crate) fn call(&self) -> OnDrop<impl FnOnce()> {
        lock(&self.state).calls += 1;
        OnDrop::new(|| {
            let mut state = lock(&self.state);
            state.calls = state.calls.saturating_sub(1);
            state.last_used_at = Instant::now();
        })
    }

    pub(crate) fn touch(&self) {
        lock(&self.state).last_used_at = Instant::now();
    }

    pub(crate) fn is_busy(&self) -> bool {
        lock(&self.state).calls > 0
    }

    /// Zero during a call.
    pub(crate) fn idle_for(&self) -> Duration {
        let state = lock(&self.state);
        match state.calls {
            0 => state.last_used_at.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Open streams do not count as use.
    pub(crate) fn set_listening(&self, is_listening: bool) {
        let mut state = lock(&self.state);
        if state.is_listening && !is_listening {
            state.stream_ended_at = Instant::now();
        }
        state.is_listening = is_listening;
    }

    /// Zero during a call or while a stream is open.
    pub(crate) fn unused_for(&self) -> Duration {
        let state = lock(&self.state);
        if state.calls > 0 || state.is_listening {
            return Duration::ZERO;
        }
        state.last_used_at.max(state.stream_ended_at).elapsed()
    }
}
