//! Tells watchers of the daemon when a server is there, and when it is not.
//!
//! Comes in: that something changed. Goes out: one event for each server that connected or failed.
//! Never here: progress; that has a stream of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use boxwood_api::{EventKind, McpServerName, McpStatus};
use boxwood_mcp::{Hosting, ServerStanding};
use boxwood_session::Sessions;
use tokio::sync::watch;

/// Many changes in a row are looked at once.
const TOGETHER: Duration = Duration::from_millis(100);

/// Until the daemon stops.
pub(super) async fn tell(
    hosting: Hosting,
    sessions: Sessions,
    mut stopping: watch::Receiver<bool>,
) {
    let mut changes = hosting.changes();
    let mut known = BTreeMap::new();
    loop {
        changes.borrow_and_update();
        for server in news(&mut known, hosting.standings()) {
            let session = server.session.clone();
            if let Some(kind) = event(server) {
                sessions.announce(&session, kind);
            }
        }
        tokio::time::sleep(TOGETHER).await;
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// The servers whose status is another than before.
fn news(
    known: &mut BTreeMap<McpServerName, McpStatus>,
    servers: Vec<ServerStanding>,
) -> Vec<ServerStanding> {
    let before = std::mem::take(known);
    let mut changed = Vec::new();
    for server in servers {
        let status = server.status;
        known.insert(server.name.clone(), status);
        if before.get(&server.name) != Some(&status) {
            changed.push(server);
        }
    }
    changed
}

fn event(server: ServerStanding) -> Option<EventKind> {
    let name = server.name;
    match server.status {
        McpStatus::Connected => Some(EventKind::McpConnected { name }),
        McpStatus::Error => Some(EventKind::McpFailed {
            name,
            phase: server.error_phase,
            message: server.error_message.unwrap_or_default(),
        }),
        McpStatus::Disabled | McpStatus::Queued | McpStatus::Connecting | McpStatus::Stopped => {
            None
        }
    }
}

pub(super) fn word(status: McpStatus) -> &'static str {
    match status {
        McpStatus::Disabled => "disabled",
        McpStatus::Queued => "queued",
        McpStatus::Connecting => "connecting",
        McpStatus::Connected => "connected",
        McpStatus::Stopped => "stopped",
        McpStatus::Error => "error",
    }
}
