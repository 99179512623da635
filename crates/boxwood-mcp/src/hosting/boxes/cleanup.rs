//! Removes boxes and installs that are no longer used.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use boxwood_agent::Answer;
use boxwood_api::SessionId;

use super::ids;
use crate::hosting::context::HostContext;
use crate::hosting::host::Inner;

/// Interval of the cleanup while the daemon runs.
const INTERVAL: Duration = Duration::from_hours(1);

/// Removes boxes of interrupted tests and installs, and of servers without a stored definition.
pub(crate) async fn clear_leftovers(inner: &Inner) {
    for session in boxes(&inner.context).await.unwrap_or_default() {
        // Once this daemon shuts down, the next one may already use the box.
        if inner.closing.is_cancelled() {
            return;
        }
        if ids::is_temporary(&session) {
            continue;
        }
        let name = ids::server_of(&session);
        // The server may have been added again meanwhile. Holding its lock prevents that during the removal.
        let _held = match &name {
            Some(name) => Some(inner.changing.hold(name.as_str()).await),
            None => None,
        };
        let is_stored = name.is_some_and(|name| {
            let handles = inner.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.contains_key(&name) || inner.unread.contains(&name)
        });
        if !is_stored {
            remove(&inner.context, &session).await;
        }
    }
    inner.context.tidy().await;
}

pub(crate) async fn run_periodically(context: &Arc<HostContext>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        context.tidy().await;
    }
}

/// Removes leftover boxes of tests and installs. Returns true if all of them are gone.
pub(crate) async fn clear_temporary(context: &HostContext) -> bool {
    let Ok(sessions) = boxes(context).await else {
        return false;
    };
    let mut all_removed = true;
    for session in sessions.into_iter().filter(ids::is_temporary) {
        // A held session is still in use and removed by its owner.
        if let Some(_held) = context.temporary.try_hold(session.as_str()) {
            all_removed &= remove(context, &session).await;
        }
    }
    all_removed
}

async fn boxes(context: &HostContext) -> Answer<Vec<SessionId>> {
    let listed = context.with_timeout("listing boxes", context.runtime.sessions());
    listed.await.inspect_err(|error| {
        tracing::warn!(%error, "failed to list the boxes of hosted servers");
    })
}

/// Returns true if the box is gone. Otherwise the next cleanup tries again.
async fn remove(context: &HostContext, session: &SessionId) -> bool {
    let removed = context.delete_box(session).await;
    if let Err(error) = &removed {
        tracing::warn!(%session, %error, "failed to remove a leftover box");
    }
    removed.is_ok()
}
