//! Sends progress notifications for a running call, if the client asked for them.

use std::sync::Mutex;
use std::time::Duration;

use boxwood_agent::{Progress, Stream};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use crate::lock;

/// Minimum interval between notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Interval without output. Clients reset their timeout on each notification.
const MAX_INTERVAL: Duration = Duration::from_secs(5);
const MAX_LINE_CHARS: usize = 200;

/// The latest output of a call.
#[derive(Default)]
pub(crate) struct LatestProgress {
    latest: Mutex<LatestLine>,
}

#[derive(Default)]
struct LatestLine {
    line: String,
    is_new: bool,
}

impl LatestProgress {
    fn take(&self) -> Option<String> {
        let mut latest = lock(&self.latest);
        std::mem::take(&mut latest.is_new).then(|| latest.line.clone())
    }
}

impl Progress for LatestProgress {
    fn output(&self, _stream: Stream, text: &str) {
        self.step(text);
    }

    fn step(&self, text: &str) {
        let Some(line) = last_line(text) else { return };
        let mut latest = lock(&self.latest);
        latest.line = line;
        latest.is_new = true;
    }
}

fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let shown = line.chars().filter(|c| !c.is_control());
    Some(shown.take(MAX_LINE_CHARS).collect())
}

/// Runs until it is dropped.
pub(crate) async fn report(
    progress: &LatestProgress,
    token: Option<ProgressToken>,
    peer: &Peer<RoleServer>,
) {
    if let Some(token) = token {
        send_changes(progress, token, peer).await;
    }
    std::future::pending::<()>().await;
}

/// Returns when the client is disconnected.
async fn send_changes(progress: &LatestProgress, token: ProgressToken, peer: &Peer<RoleServer>) {
    let started = Instant::now();
    let mut last = started;
    loop {
        tokio::time::sleep(MIN_INTERVAL).await;
        let message = match progress.take() {
            Some(line) => line,
            None if last.elapsed() >= MAX_INTERVAL => {
                format!("running for {} s", started.elapsed().as_secs())
            }
            None => continue,
        };
        last = Instant::now();
        // Elapsed seconds grow with every notification, as the protocol requires.
        let params = ProgressNotificationParam::new(token.clone(), started.elapsed().as_secs_f64())
            .with_message(message);
        if peer.notify_progress(params).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_non_empty_line_is_reported() {
        assert_eq!(last_line("one\ntwo\n\n").as_deref(), Some("two"));
        assert_eq!(last_line("\u{1b}[1mred\r\n").as_deref(), Some("[1mred"));
        assert_eq!(last_line(" \n"), None);
        assert_eq!(
            last_line(&"x".repeat(999)).map(|line| line.len()),
            Some(200)
        );
    }

    #[test]
    fn a_line_is_reported_once() {
        let progress = LatestProgress::default();
        progress.output(Stream::Stdout, "a\n");
        progress.output(Stream::Stderr, "b\n");
        assert_eq!(progress.take().as_deref(), Some("b"));
        assert_eq!(progress.take(), None);
    }
}
