//! Whether a connected server is still of use: does it answer, and does anybody ask?

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpPhase;

use super::HostingSettings;
use super::fault::Fault;
use super::hosted::Hosted;
use super::server::Live;
use crate::wire::{CallError, Connection, Era, ping};

/// A process that is asked for signs of life.
pub(crate) struct Watched<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) era: Era,
    /// One that was taken over may be at work for somebody who is gone, until it has answered once.
    pub(crate) has_answered: bool,
}

impl<'a> Watched<'a> {
    pub(crate) fn main(live: &'a Live) -> Self {
        Self {
            connection: &live.connection,
            era: live.greeting.era,
            has_answered: !live.is_taken_over,
        }
    }
}

/// Resolves once it no longer answers. The end of its process is somebody else's news.
pub(crate) async fn broken(watched: Watched<'_>, settings: &HostingSettings) -> Fault {
    let Watched {
        connection,
        era,
        mut has_answered,
    } = watched;
    let mut lost = 0;
    loop {
        // What it says on its own is as good as an answer.
        let heard = connection.quiet_for();
        if heard < settings.ping_every {
            lost = 0;
            tokio::time::sleep(settings.ping_every.saturating_sub(heard)).await;
            continue;
        }
        match ping(connection, era, settings.ping_timeout).await {
            Ok(()) => {
                has_answered = true;
                continue;
            }
            Err(CallError::Ended(_)) => std::future::pending().await,
            Err(_) => lost += 1,
        }
        let quiet = connection.quiet_for();
        if quiet < settings.ping_every {
            continue;
        }
        // A server that works on a call with its only thread cannot answer.
        let is_broken = if connection.is_busy() || !has_answered {
            quiet >= settings.busy_patience
        } else {
            lost >= settings.lost_pings
        };
        if is_broken {
            return not_answering(lost, quiet);
        }
        tokio::time::sleep(settings.ping_every.saturating_sub(settings.ping_timeout)).await;
    }
}

fn not_answering(lost: u32, quiet: Duration) -> Fault {
    let seconds = quiet.as_secs();
    let message =
        format!("the server left {lost} pings in a row unanswered and was quiet for {seconds} s");
    Fault::new(McpPhase::Runtime, message)
        .with_hint("its stderr may say what it is stuck in".to_owned())
}

/// Resolves once nobody has called it for as long as its description says.
pub(crate) async fn unused(hosted: &Arc<Hosted>, live: &Live) {
    let mut changes = hosted.watch();
    loop {
        // Zero means never, for those who have to say something.
        let limit = hosted.spec().idle_stop_sec.filter(|limit| *limit > 0);
        let Some(limit) = limit.map(Duration::from_secs) else {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            continue;
        };
        let children = live.children.idle_for();
        let idle = [
            Some(live.connection.idle_for()),
            Some(hosted.untouched_for()),
            children,
        ];
        let idle = idle.into_iter().flatten().min().unwrap_or_default();
        if idle >= limit {
            return;
        }
        // An edit may have changed the limit.
        let next = tokio::time::timeout(limit.saturating_sub(idle), changes.changed()).await;
        if matches!(next, Ok(Err(_))) {
            std::future::pending::<()>().await;
        }
    }
}
