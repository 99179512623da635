//! Detects hung and idle servers.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpPhase;

use super::fault::Fault;
use super::state::ServerState;
use crate::hosting::HostingSettings;
use crate::hosting::process::server::RunningServer;
use crate::wire::{CallError, Connection, Protocol, ping};

pub(crate) struct Watched<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) protocol: Protocol,
    /// False for an adopted server until it answers, because it may be busy with a call of an earlier daemon.
    pub(crate) has_answered: bool,
}

/// Resolves when the server no longer answers. An exit is reported elsewhere.
pub(crate) async fn until_hung(watched: Watched<'_>, settings: &HostingSettings) -> Fault {
    let Watched {
        connection,
        protocol,
        mut has_answered,
    } = watched;
    let mut lost = 0;
    loop {
        // Any message counts as an answer.
        let silence = connection.since_last_message();
        if silence < settings.ping_every {
            lost = 0;
            tokio::time::sleep(settings.ping_every.saturating_sub(silence)).await;
            continue;
        }
        match ping(connection, protocol, settings.ping_timeout).await {
            Ok(()) => {
                has_answered = true;
                continue;
            }
            Err(CallError::Closed(_)) => std::future::pending().await,
            Err(_) => lost += 1,
        }
        let silence = connection.since_last_message();
        if silence < settings.ping_every {
            continue;
        }
        // A single-threaded server cannot answer during a call.
        let is_hung = if connection.is_busy() || !has_answered {
            silence >= settings.busy_timeout
        } else {
            lost >= settings.lost_pings
        };
        if is_hung {
            return not_answering(lost, silence);
        }
        tokio::time::sleep(settings.ping_every.saturating_sub(settings.ping_timeout)).await;
    }
}

fn not_answering(lost: u32, silence: Duration) -> Fault {
    let seconds = silence.as_secs();
    let message =
        format!("the server did not answer {lost} pings in a row and sent nothing for {seconds} s");
    Fault::new(McpPhase::Runtime, message)
        .with_hint("`boxwood mcp logs NAME` shows its stderr".to_owned())
}

/// Resolves when the server was not called for its configured idle time.
pub(crate) async fn until_idle(state: &Arc<ServerState>, live: &RunningServer) {
    let mut changes = state.watch();
    loop {
        // Zero means never.
        let limit = state.spec().idle_stop_sec.filter(|limit| *limit > 0);
        let Some(limit) = limit.map(Duration::from_secs) else {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            continue;
        };
        let children = live.children.idle_for();
        let idle = [
            Some(live.connection.idle_for()),
            Some(state.untouched_for()),
            children,
        ];
        let idle = idle.into_iter().flatten().min().unwrap_or_default();
        if idle >= limit {
            return;
        }
        // An update may change the limit.
        let next = tokio::time::timeout(limit.saturating_sub(idle), changes.changed()).await;
        if matches!(next, Ok(Err(_))) {
            std::future::pending::<()>().await;
        }
    }
}
