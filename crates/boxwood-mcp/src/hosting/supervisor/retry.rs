//! Decides whether and when a failed server is started again.
//!
//! Pure: no sleeping and no clock.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::hosting::HostingSettings;

/// Whether another attempt may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retryable {
    Yes,
    /// Worth one retry. The same kind of failure again is permanent.
    Once,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Retry { after: Duration },
    GiveUp(GiveUpReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUpReason {
    NotRetryable,
    Exhausted { attempts: u32 },
    CrashLoop { exits: usize },
}

#[derive(Debug)]
pub(crate) struct Retry {
    settings: HostingSettings,
    failures: u32,
    /// The last failure was `Retryable::Once`.
    last_was_once: bool,
    connected_at: Option<Instant>,
    /// Exit times of the main process within the window, at most one more than the limit.
    exits: VecDeque<Instant>,
}

impl Retry {
    pub(crate) fn new(settings: &HostingSettings) -> Self {
        Self {
            settings: settings.clone(),
            failures: 0,
            last_was_once: false,
            connected_at: None,
            exits: VecDeque::new(),
        }
    }

    /// Consecutive failures since the server was last healthy.
    pub(crate) fn count(&self) -> u32 {
        self.failures
    }

    /// Resets all counters after an explicit start.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
        self.last_was_once = false;
        self.connected_at = None;
        self.exits.clear();
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        self.connected_at = Some(now);
    }

    /// When the failures are reset, if the server stays connected.
    pub(crate) fn healthy_at(&self) -> Option<Instant> {
        let since = self.connected_at?;
        (self.failures > 0 || self.last_was_once).then(|| since + self.settings.healthy_after)
    }

    /// Resets the failures after the server was connected long enough.
    pub(crate) fn settle(&mut self, now: Instant) {
        if self.healthy_at().is_some_and(|at| now >= at) {
            self.failures = 0;
            self.last_was_once = false;
        }
    }

    /// `main_exited` is true if the main process exited by itself.
    pub(crate) fn failed(&mut self, now: Instant, retryable: Retryable, main_exited: bool) -> Next {
        self.settle(now);
        self.connected_at = None;
        self.failures = self.failures.saturating_add(1);
        let is_repeated_once = retryable == Retryable::Once && self.last_was_once;
        self.last_was_once = retryable == Retryable::Once;
        let exits = self.recent_exits(now, main_exited);
        if retryable == Retryable::No || is_repeated_once {
            return Next::GiveUp(GiveUpReason::NotRetryable);
        }
        if exits > self.settings.crash_limit {
            return Next::GiveUp(GiveUpReason::CrashLoop { exits });
        }
        let delay = usize::try_from(self.failures - 1)
            .ok()
            .and_then(|at| self.settings.retry_delays.get(at));
        match delay {
            Some(after) => Next::Retry { after: *after },
            None => Next::GiveUp(GiveUpReason::Exhausted {
                attempts: self.failures,
            }),
        }
    }

    fn recent_exits(&mut self, now: Instant, main_exited: bool) -> usize {
        let window = self.settings.crash_window;
        self.exits
            .retain(|exit| now.saturating_duration_since(*exit) < window);
        if main_exited {
            if self.exits.len() > self.settings.crash_limit {
                self.exits.pop_front();
            }
            self.exits.push_back(now);
        }
        self.exits.len()
    }
}
