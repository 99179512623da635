//! Removes boxes and installs that are no longer used.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use boxwood_api::SessionId;

use super::ids;
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::definitions::store::Listed;
use crate::hosting::host::Inner;

/// Interval of the cleanup while the daemon runs.
const EVERY: Duration = Duration::from_hours(1);

/// Boxes of interrupted tests and installs, and of servers without a definition.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<BTreeSet<SessionId>>);

impl Leftovers {
    /// A server with a stored definition is never a leftover, even if the definition cannot be read.
    pub(crate) fn find(context: &HostContext, listed: &Listed) -> Self {
        let found = context.journal.all().unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to list leftover boxes");
            Vec::new()
        });
        let mut found = BTreeSet::from_iter(found);
        for name in listed.names() {
            found.remove(&ids::session_of(name));
        }
        Self(Mutex::new(found))
    }

    pub(crate) async fn clear(&self, inner: &Inner) {
        let found = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for session in found {
            let name = ids::server_of(&session);
            // The server may have been added again meanwhile. Holding its lock prevents that during the removal.
            let _held = match &name {
                Some(name) => Some(inner.changing.hold(name.as_str()).await),
                None => None,
            };
            let is_back = name.is_some_and(|name| {
                let handles = inner.handles.lock().unwrap_or_else(PoisonError::into_inner);
                handles.contains_key(&name)
            });
            if !is_back {
                remove(&inner.context, &session).await;
            }
        }
        inner.context.tidy().await;
    }
}

pub(crate) async fn every_hour(context: &Arc<HostContext>) {
    loop {
        tokio::time::sleep(EVERY).await;
        context.tidy().await;
    }
}

/// Removes leftover boxes of tests and installs. Returns true if all of them are gone.
pub(crate) async fn clear_temporary(context: &Arc<HostContext>) -> bool {
    let journal = context.journal.clone();
    let found = match blocking(move || journal.all()).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "failed to list leftover boxes");
            return false;
        }
    };
    let mut are_gone = true;
    for session in found.into_iter().filter(ids::is_temporary) {
        // A held session is still in use and removed by its owner.
        if let Some(_held) = context.temporary.try_hold(session.as_str()) {
            are_gone &= remove(context, &session).await;
        }
    }
    are_gone
}

/// Returns true if the box is gone. Otherwise it stays in the journal and is tried again later.
async fn remove(context: &HostContext, session: &SessionId) -> bool {
    let removed = context.delete_box(session).await;
    if let Err(error) = &removed {
        tracing::warn!(%session, %error, "failed to remove a leftover box");
    }
    removed.is_ok()
}
