//! Whether a server that failed is started again, and when.
//!
//! Comes in: what happened to it, and the time. Goes out: a pause, or the end of all attempts. Never
//! here: sleeping, starting, clocks. Same inputs, same answer.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::HostingSettings;

/// Whether another attempt could go better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mends {
    Perhaps,
    /// One more attempt is worth it; the same failure again is final.
    HardlyTwice,
    Never,
}

/// What is done after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Again { after: Duration },
    GiveUp(GivenUp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// Another attempt would fail as this one did.
    CannotMend,
    Exhausted {
        attempts: u32,
    },
    CrashLoop {
        ends: usize,
    },
}

#[derive(Debug)]
pub(crate) struct Retry {
    delays: [Duration; 3],
    healthy_after: Duration,
    crash_limit: usize,
    crash_window: Duration,
    failures: u32,
    /// The last failure was one of which a second is final.
    was_doubtful: bool,
    connected_at: Option<Instant>,
    /// When the main process ended by itself; nothing older than the window, and one more than the
    /// limit at most.
    ends: VecDeque<Instant>,
}

impl Retry {
    pub(crate) fn new(settings: &HostingSettings) -> Self {
        Self {
            delays: settings.retry_delays,
            healthy_after: settings.healthy_after,
            crash_limit: settings.crash_limit,
            crash_window: settings.crash_window,
            failures: 0,
            was_doubtful: false,
            connected_at: None,
            ends: VecDeque::new(),
        }
    }

    /// Failures in a row since it was last healthy.
    pub(crate) fn count(&self) -> u32 {
        self.failures
    }

    /// Somebody asked for a start: what was before does not count any more.
    pub(crate) fn asked(&mut self) {
        self.failures = 0;
        self.was_doubtful = false;
        self.connected_at = None;
        self.ends.clear();
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        self.connected_at = Some(now);
    }

    /// When its failures are forgotten, if it stays connected.
    pub(crate) fn healthy_at(&self) -> Option<Instant> {
        let since = self.connected_at?;
        (self.failures > 0 || self.was_doubtful).then(|| since + self.healthy_after)
    }

    /// Forgets failures when it has been connected for long enough.
    pub(crate) fn settle(&mut self, now: Instant) {
        if self.healthy_at().is_some_and(|at| now >= at) {
            self.failures = 0;
            self.was_doubtful = false;
        }
    }

    /// `main_ended` says whether the main process ended by itself.
    pub(crate) fn failed(&mut self, now: Instant, mends: Mends, main_ended: bool) -> Next {
        self.settle(now);
        self.connected_at = None;
        self.failures = self.failures.saturating_add(1);
        let is_second_doubt = mends == Mends::HardlyTwice && self.was_doubtful;
        self.was_doubtful = mends == Mends::HardlyTwice;
        let ends = self.ends_lately(now, main_ended);
        if mends == Mends::Never || is_second_doubt {
            return Next::GiveUp(GivenUp::CannotMend);
        }
        if ends > self.crash_limit {
            return Next::GiveUp(GivenUp::CrashLoop { ends });
        }
        let delay = usize::try_from(self.failures - 1)
            .ok()
            .and_then(|at| self.delays.get(at));
        match delay {
            Some(after) => Next::Again { after: *after },
            None => Next::GiveUp(GivenUp::Exhausted {
                attempts: self.failures,
            }),
        }
    }

    fn ends_lately(&mut self, now: Instant, one_more: bool) -> usize {
        let window = self.crash_window;
        self.ends
            .retain(|end| now.saturating_duration_since(*end) < window);
        if one_more {
            if self.ends.len() > self.crash_limit {
                self.ends.pop_front();
            }
            self.ends.push_back(now);
        }
        self.ends.len()
    }
}
