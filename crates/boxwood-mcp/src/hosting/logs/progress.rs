//! Records the phases of a start, and streams them with the output of installers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_api::{McpPhase, McpProgress, McpRuntimeInfo, McpStep};
use futures_util::{Stream, stream};
use jiff::Timestamp;
use tokio::sync::broadcast;

use super::tail::Tail;
use crate::hosting::supervisor::state::ServerState;

/// Older steps are dropped.
const MAX_STEPS: usize = 32;
const INSTALL_LOG_BYTES: usize = 256 * 1024;
/// Events that are kept for a slow receiver. Further ones replace the oldest.
const MAX_LAG: usize = 1_024;

#[derive(Debug)]
pub(crate) struct ProgressLog {
    inner: Mutex<Inner>,
    watchers: broadcast::Sender<McpProgress>,
}

#[derive(Debug)]
struct Inner {
    steps: Vec<McpStep>,
    /// How boxes differ from their request.
    notices: Vec<String>,
    /// Set while waiting for the next attempt.
    waiting: Option<McpProgress>,
    install: Tail,
}

impl ProgressLog {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                steps: Vec::new(),
                notices: Vec::new(),
                waiting: None,
                install: Tail::new(INSTALL_LOG_BYTES),
            }),
            watchers: broadcast::Sender::new(MAX_LAG),
        }
    }

    /// Clears the record of the previous start.
    pub(crate) fn begin(&self) {
        let mut inner = self.inner();
        inner.steps.clear();
        inner.notices.clear();
        inner.waiting = None;
    }

    /// Records a wait with its reason.
    pub(crate) fn wait(&self, reason: String, retry_count: u32, until: Option<Timestamp>) {
        let waiting = McpProgress::Waiting {
            why: reason,
            retry_count,
            until,
        };
        let mut inner = self.inner();
        inner.waiting = Some(waiting.clone());
        self.send(waiting);
    }

    pub(crate) fn enter(&self, phase: McpPhase, detail: Option<String>) {
        let now = Timestamp::now();
        let mut inner = self.inner();
        end_open_step(&mut inner.steps, now);
        inner.waiting = None;
        if inner.steps.len() == MAX_STEPS {
            inner.steps.remove(0);
        }
        inner.steps.push(McpStep {
            phase,
            started_at: now,
            ended_at: None,
            detail: detail.clone(),
        });
        self.send(McpProgress::Phase { phase, detail });
    }

    /// Duplicates are ignored, because one start may create several boxes.
    pub(crate) fn notice(&self, notices: impl IntoIterator<Item = String>) {
        let mut inner = self.inner();
        for notice in notices {
            if !inner.notices.contains(&notice) {
                inner.notices.push(notice);
            }
        }
    }

    pub(crate) fn notices(&self) -> Vec<String> {
        self.inner().notices.clone()
    }

    /// The current phase.
    pub(crate) fn phase(&self) -> Option<McpPhase> {
        let inner = self.inner();
        inner
            .steps
            .last()
            .filter(|step| step.ended_at.is_none())
            .map(|step| step.phase)
    }

    /// Ends the current phase.
    pub(crate) fn end_phase(&self) {
        let mut inner = self.inner();
        inner.waiting = None;
        end_open_step(&mut inner.steps, Timestamp::now());
    }

    pub(crate) fn begin_install(&self) {
        self.inner().install.clear();
    }

    pub(crate) fn output(&self, line: &str) {
        let mut inner = self.inner();
        inner.install.push(line);
        self.send(McpProgress::Output {
            line: line.to_owned(),
        });
    }

    /// Sends a line to current followers without recording it.
    pub(crate) fn emit(&self, line: String) {
        let _locked = self.inner();
        self.send(McpProgress::Output { line });
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.receiver_count() > 0
    }

    pub(crate) fn done(&self, runtime: McpRuntimeInfo) {
        self.send(McpProgress::Done {
            runtime: Box::new(runtime),
        });
    }

    pub(crate) fn steps(&self) -> Vec<McpStep> {
        self.inner().steps.clone()
    }

    pub(crate) fn install_log(&self) -> String {
        self.inner().install.text()
    }

    /// The events so far and a receiver for all later ones, without gaps or duplicates.
    pub(crate) fn follow(&self) -> (Vec<McpProgress>, broadcast::Receiver<McpProgress>) {
        let inner = self.inner();
        let steps = inner.steps.iter().map(|step| McpProgress::Phase {
            phase: step.phase,
            detail: step.detail.clone(),
        });
        let so_far = steps.chain(inner.waiting.clone()).collect();
        (so_far, self.watchers.subscribe())
    }

    /// Except for `Done`, the caller holds the lock, so that a new follower sees each event exactly once.
    fn send(&self, progress: McpProgress) {
        // Fails only without receivers.
        drop(self.watchers.send(progress));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_open_step(steps: &mut [McpStep], now: Timestamp) {
    if let Some(step) = steps.last_mut() {
        step.ended_at.get_or_insert(now);
    }
}

/// The phases so far, then all further events. The last is always `Done`.
pub(crate) fn follow(state: Arc<ServerState>) -> impl Stream<Item = McpProgress> + Send + use<> {
    let (so_far, events) = state.progress_log.follow();
    let mut ready = VecDeque::from(so_far);
    // The `Done` event of a settled state may have been sent before the subscription.
    if state.run_state().is_settled() {
        ready.push_back(last(&state));
    }
    stream::unfold(Some((state, ready, events)), |following| async move {
        let (state, mut ready, mut events) = following?;
        let next = match ready.pop_front() {
            Some(next) => next,
            None => next_event(&state, &mut events).await,
        };
        let is_last = matches!(next, McpProgress::Done { .. });
        Some((next, (!is_last).then_some((state, ready, events))))
    })
}

async fn next_event(
    state: &ServerState,
    events: &mut broadcast::Receiver<McpProgress>,
) -> McpProgress {
    loop {
        match events.recv().await {
            Ok(progress) => return progress,
            // The last event may be among the lost ones.
            Err(broadcast::error::RecvError::Lagged(_)) if !state.run_state().is_settled() => {}
            Err(_) => return last(state),
        }
    }
}

fn last(state: &ServerState) -> McpProgress {
    McpProgress::Done {
        runtime: Box::new(state.runtime()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_when_the_next_begins() {
        let progress_log = ProgressLog::new();
        progress_log.enter(McpPhase::SessionCreate, None);
        progress_log.enter(McpPhase::DepInstall, Some("mcp-server-time".to_owned()));
        let steps = progress_log.steps();
        assert_eq!(steps[0].ended_at, Some(steps[1].started_at));
        assert_eq!(steps[1].ended_at, None);
        progress_log.end_phase();
        assert!(progress_log.steps()[1].ended_at.is_some());
        progress_log.begin();
        assert_eq!(progress_log.steps(), []);
    }

    #[test]
    fn a_late_follower_sees_earlier_and_later_events() {
        let progress_log = ProgressLog::new();
        progress_log.enter(McpPhase::SessionCreate, None);
        let (steps, mut events) = progress_log.follow();
        progress_log.output("Collecting mcp");
        assert_eq!(steps.len(), 1);
        let line = "Collecting mcp".to_owned();
        assert_eq!(events.try_recv().ok(), Some(McpProgress::Output { line }));
        assert_eq!(progress_log.install_log(), "Collecting mcp\n");
    }

    #[test]
    fn notices_are_unique_and_reset_at_each_start() {
        let progress_log = ProgressLog::new();
        let locked = || ["network is locked".to_owned()];
        progress_log.notice(locked());
        progress_log.notice(locked());
        assert_eq!(progress_log.notices(), locked());
        progress_log.begin();
        assert_eq!(progress_log.notices(), [""; 0]);
    }

    #[test]
    fn the_number_of_steps_is_bounded() {
        let progress_log = ProgressLog::new();
        for _ in 0..100 {
            progress_log.enter(McpPhase::SessionCreate, None);
        }
        assert_eq!(progress_log.steps().len(), MAX_STEPS);
    }
}
