//! Publishes an event when a server connects or fails.

use std::collections::BTreeMap;
use std::time::Duration;

use boxwood_api::{EventKind, McpServerName, McpStatus};
use boxwood_mcp::{Hosting, ServerSummary};
use boxwood_session::Sessions;
use tokio::sync::watch;

/// Changes within this time are handled together.
const BATCH_DELAY: Duration = Duration::from_millis(100);

/// Runs until the daemon stops.
pub(super) async fn publish(
    hosting: Hosting,
    sessions: Sessions,
    mut stopping: watch::Receiver<bool>,
) {
    let mut changes = hosting.changes();
    let mut known = BTreeMap::new();
    loop {
        changes.borrow_and_update();
        for server in changed_servers(&mut known, hosting.summaries()) {
            let session = server.session.clone();
            if let Some(kind) = event(server) {
                sessions.announce(&session, kind);
            }
        }
        tokio::time::sleep(BATCH_DELAY).await;
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

/// The servers whose status changed.
fn changed_servers(
    known: &mut BTreeMap<McpServerName, McpStatus>,
    mut servers: Vec<ServerSummary>,
) -> Vec<ServerSummary> {
    let now = servers
        .iter()
        .map(|server| (server.name.clone(), server.status));
    let before = std::mem::replace(known, now.collect());
    servers.retain(|server| before.get(&server.name) != Some(&server.status));
    servers
}

fn event(server: ServerSummary) -> Option<EventKind> {
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
