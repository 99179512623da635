//! The way of a start, phase by phase, for whoever watches and for those who ask later.

use std::sync::{Mutex, MutexGuard, PoisonError};

use boxwood_api::{McpPhase, McpProgress, McpRuntimeInfo, McpStep};
use jiff::Timestamp;
use tokio::sync::broadcast;

use super::tail::Tail;

/// Of a start and its attempts; more are only counted.
const MAX_STEPS: usize = 32;
const INSTALL_LOG_BYTES: usize = 256 * 1024;
/// A watcher that is further behind loses the oldest lines.
const WATCHED_LINES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Track {
    kept: Mutex<Kept>,
    watchers: broadcast::Sender<McpProgress>,
}

#[derive(Debug)]
struct Kept {
    steps: Vec<McpStep>,
    /// What its boxes have otherwise than they were asked for.
    notices: Vec<String>,
    /// Set while it waits for its next attempt.
    waiting: Option<McpProgress>,
    install: Tail,
}

impl Track {
    pub(crate) fn new() -> Self {
        Self {
            kept: Mutex::new(Kept {
                steps: Vec::new(),
                notices: Vec::new(),
                waiting: None,
                install: Tail::new(INSTALL_LOG_BYTES),
            }),
            watchers: broadcast::Sender::new(WATCHED_LINES),
        }
    }

    /// A start begins: the way of the one before is history.
    pub(crate) fn begin(&self) {
        let mut kept = self.kept();
        kept.steps.clear();
        kept.notices.clear();
        kept.waiting = None;
    }

    /// Nothing happens for now.
    pub(crate) fn wait(&self, why: String, retry_count: u32, until: Option<Timestamp>) {
        let waiting = McpProgress::Waiting {
            why,
            retry_count,
            until,
        };
        let mut kept = self.kept();
        kept.waiting = Some(waiting.clone());
        self.say(waiting);
    }

    pub(crate) fn enter(&self, phase: McpPhase, detail: Option<String>) {
        let now = Timestamp::now();
        let mut kept = self.kept();
        end_open_step(&mut kept.steps, now);
        kept.waiting = None;
        if kept.steps.len() == MAX_STEPS {
            kept.steps.remove(0);
        }
        kept.steps.push(McpStep {
            phase,
            started_at: now,
            ended_at: None,
            detail: detail.clone(),
        });
        self.say(McpProgress::Phase { phase, detail });
    }

    /// What the phase it is in turned out to be about.
    pub(crate) fn detail(&self, words: &str) {
        let mut kept = self.kept();
        let Some(step) = kept.steps.last_mut() else {
            return;
        };
        step.detail = Some(words.to_owned());
        let phase = step.phase;
        self.say(McpProgress::Phase {
            phase,
            detail: Some(words.to_owned()),
        });
    }

    /// Each is told once, however many boxes a start makes.
    pub(crate) fn notice(&self, notices: impl IntoIterator<Item = String>) {
        let mut kept = self.kept();
        for notice in notices {
            if !kept.notices.contains(&notice) {
                kept.notices.push(notice);
            }
        }
    }

    pub(crate) fn notices(&self) -> Vec<String> {
        self.kept().notices.clone()
    }

    /// The phase it is in.
    pub(crate) fn phase(&self) -> Option<McpPhase> {
        let kept = self.kept();
        kept.steps
            .last()
            .filter(|step| step.ended_at.is_none())
            .map(|step| step.phase)
    }

    /// Nothing more happens in the phase it is in.
    pub(crate) fn rest(&self) {
        let mut kept = self.kept();
        kept.waiting = None;
        end_open_step(&mut kept.steps, Timestamp::now());
    }

    pub(crate) fn begin_install(&self) {
        self.kept().install.clear();
    }

    pub(crate) fn output(&self, line: &str) {
        let mut kept = self.kept();
        kept.install.push(line);
        self.say(McpProgress::Output {
            line: line.to_owned(),
        });
    }

    /// For whoever watches, and for nobody later.
    pub(crate) fn tell(&self, line: String) {
        let _kept = self.kept();
        self.say(McpProgress::Output { line });
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.receiver_count() > 0
    }

    pub(crate) fn done(&self, runtime: McpRuntimeInfo) {
        self.say(McpProgress::Done {
            runtime: Box::new(runtime),
        });
    }

    pub(crate) fn steps(&self) -> Vec<McpStep> {
        self.kept().steps.clone()
    }

    pub(crate) fn install_log(&self) -> String {
        self.kept().install.text()
    }

    /// What there was so far, and everything from then on: nothing is missed or told twice.
    pub(crate) fn follow(&self) -> (Vec<McpProgress>, broadcast::Receiver<McpProgress>) {
        let kept = self.kept();
        let steps = kept.steps.iter().map(|step| McpProgress::Phase {
            phase: step.phase,
            detail: step.detail.clone(),
        });
        let so_far = steps.chain(kept.waiting.clone()).collect();
        (so_far, self.watchers.subscribe())
    }

    /// Called with the steps locked, so that a new watcher is either before or after.
    fn say(&self, progress: McpProgress) {
        // That nobody watches is no failure.
        drop(self.watchers.send(progress));
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_open_step(steps: &mut [McpStep], now: Timestamp) {
    if let Some(step) = steps.last_mut() {
        step.ended_at.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_when_the_next_begins() {
        let track = Track::new();
        track.enter(McpPhase::SessionCreate, None);
        track.enter(McpPhase::DepInstall, Some("mcp-server-time".to_owned()));
        let steps = track.steps();
        assert_eq!(steps[0].ended_at, Some(steps[1].started_at));
        assert_eq!(steps[1].ended_at, None);
        track.rest();
        assert!(track.steps()[1].ended_at.is_some());
        track.begin();
        assert_eq!(track.steps(), []);
    }

    #[test]
    fn who_comes_later_sees_the_steps_so_far_and_then_the_rest() {
        let track = Track::new();
        track.enter(McpPhase::SessionCreate, None);
        let (steps, mut rest) = track.follow();
        track.output("Collecting mcp");
        assert_eq!(steps.len(), 1);
        let line = "Collecting mcp".to_owned();
        assert_eq!(rest.try_recv().ok(), Some(McpProgress::Output { line }));
        assert_eq!(track.install_log(), "Collecting mcp\n");
    }

    #[test]
    fn a_notice_is_told_once_and_only_of_the_last_start() {
        let track = Track::new();
        let locked = || ["network is locked".to_owned()];
        track.notice(locked());
        track.notice(locked());
        assert_eq!(track.notices(), locked());
        track.begin();
        assert_eq!(track.notices(), [""; 0]);
    }

    #[test]
    fn endless_attempts_leave_a_bounded_way() {
        let track = Track::new();
        for _ in 0..100 {
            track.enter(McpPhase::SessionCreate, None);
        }
        assert_eq!(track.steps().len(), MAX_STEPS);
    }
}
