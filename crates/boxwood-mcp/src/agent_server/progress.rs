//! Sends progress notifications for a running call, if the client asked for them.

use std::sync::Mutex;
use std::time::Duration;

use boxwood_agent::{Progress, Stream};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use crate::lock;

/// Minimum interval between notifications.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// Interval without output. Clients reset their timeout on each notification.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_LINE: usize = 200;

/// The latest output of a call.
#[derive(Default)]
pub(crate) struct Watched {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    line: String,
    is_new: bool,
}

impl Watched {
    fn take(&self) -> Option<String> {
        let mut seen = lock(&self.seen);
        std::mem::take(&mut seen.is_new).then(|| seen.line.clone())
    }
}

impl Progress for Watched {
    fn output(&self, _stream: Stream, text: &str) {
        self.step(text);
    }

    fn step(&self, text: &str) {
        let Some(line) = last_line(text) else { return };
        let mut seen = lock(&self.seen);
        seen.line = line;
        seen.is_new = true;
    }
}

fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let shown = line.chars().filter(|c| !c.is_control());
    Some(shown.take(LONGEST_LINE).collect())
}

/// Runs until it is dropped.
pub(crate) async fn report(
    watched: &Watched,
    token: Option<ProgressToken>,
    peer: &Peer<RoleServer>,
) {
    if let Some(token) = token {
        send_changes(watched, token, peer).await;
    }
    std::future::pending::<()>().await;
}

/// Returns when the client is disconnected.
async fn send_changes(watched: &Watched, token: ProgressToken, peer: &Peer<RoleServer>) {
    let started = Instant::now();
    let mut last = started;
    loop {
        tokio::time::sleep(LEAST_PAUSE).await;
        let message = match watched.take() {
            Some(line) => line,
            None if last.elapsed() >= LONGEST_PAUSE => {
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
        let watched = Watched::default();
        watched.output(Stream::Stdout, "a\n");
        watched.output(Stream::Stderr, "b\n");
        assert_eq!(watched.take().as_deref(), Some("b"));
        assert_eq!(watched.take(), None);
    }
}
