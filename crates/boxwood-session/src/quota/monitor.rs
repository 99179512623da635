//! Polls the directories that a box writes to, and kills its programs when they are over a limit.
//!
//! The session lives on, and its files stay: a caller can remove some and go on.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use boxwood_api::with_causes;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::directory::Directory;
use super::estimate::Accuracy;
use super::walk::WalkError;
use crate::program::kill_later;
use crate::session::Session;

/// Between two polls of a session without commands. Programs that an earlier command left in the
/// background can still write.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(session: Weak<Session>, started: Arc<Notify>, interval: Duration) {
    let mut killed_at = 0;
    loop {
        sleep(interval).await;
        let Some(current) = session.upgrade() else {
            return;
        };
        if current.is_over() || current.is_detached() {
            return;
        }
        if !current.activity.freeze_state.is_frozen() {
            poll(&current, &mut killed_at).await;
        }
        let is_idle = current.is_idle();
        drop(current);
        if is_idle {
            // Either way the next step is a poll.
            let _ = timeout(IDLE_INTERVAL, started.notified()).await;
        }
    }
}

/// `killed_at` is the usage at the last kill. Without commands, a box that stays over its limit is not
/// killed again until it has grown.
async fn poll(session: &Arc<Session>, killed_at: &mut u64) {
    let Some(directories) = session.quota.directories.get() else {
        return;
    };
    for directory in directories {
        if directory.limit.is_some() {
            check_limit(session, directory, killed_at).await;
        }
        match directory.fills_the_host().await {
            Ok(false) | Err(WalkError::Cancelled) => {}
            Err(WalkError::Io(error)) => {
                let path = &directory.host_path;
                tracing::warn!(session = %session.id, directory = path, %error, "failed to read a mounted directory");
            }
            Ok(true)
            | Err(WalkError::TooDeep | WalkError::TooMany | WalkError::PermissionDenied) => {
                tracing::warn!(
                    session = %session.id, directory = %directory.host_path,
                    "the host has less than load.min_free_mb free: killing the programs of a box that writes"
                );
                kill(session).await;
            }
        }
    }
}

async fn check_limit(session: &Session, directory: &Directory, killed_at: &mut u64) {
    let Some(used) = over_limit(session, directory).await else {
        *killed_at = 0;
        return;
    };
    let runs = session.processes.any_running() || !session.execs.running().is_empty();
    if runs || used > *killed_at {
        tracing::info!(
            session = %session.id, used, limit = directory.limit,
            "workspace quota exceeded: killing the programs of the box"
        );
        *killed_at = used;
        kill(session).await;
    }
}

/// A tree that a box has made unmeasurable counts as over its limit.
async fn over_limit(session: &Session, directory: &Directory) -> Option<u64> {
    match directory.over_limit(Accuracy::Poll).await {
        Ok(used) => used,
        Err(WalkError::Cancelled) => None,
        Err(error) => {
            tracing::warn!(session = %session.id, directory = %directory.host_path, error = %with_causes(&error), "failed to measure a workspace");
            (!matches!(error, WalkError::Io(_))).then_some(u64::MAX)
        }
    }
}

async fn kill(session: &Session) {
    if session.is_detached() {
        // The daemon that adopts the box polls it.
        return;
    }
    // Counted before anything ends, because an end can be seen before the kill returns, and again
    // afterwards, for programs that were started meanwhile.
    session.quota.kills.fetch_add(1, Ordering::AcqRel);
    if let Err(error) = session.sandbox.kill_all().await {
        tracing::warn!(session = %session.id, error = %with_causes(&error), "failed to kill all programs of a box at once");
        for exec in session.execs.running() {
            kill_later(Arc::clone(&exec.control));
        }
        let managed = session.processes.all();
        for process in managed.iter().filter(|process| process.is_running()) {
            kill_later(process.control());
        }
    }
    session.quota.kills.fetch_add(1, Ordering::AcqRel);
}
