//! What an earlier daemon left behind and what nobody wants any more, and how it goes.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use boxwood_api::SessionId;

use super::host::Inner;
use super::kit::{Kit, blocking};
use super::naming;
use super::store::Listed;

/// A daemon may run for months.
const EVERY: Duration = Duration::from_hours(1);

/// Boxes and copies of tests and installs that were under way, and of servers that are gone.
#[derive(Debug, Default)]
pub(crate) struct LeftOver(Mutex<BTreeSet<SessionId>>);

impl LeftOver {
    /// A server that is stored is never left over, also when it cannot be read.
    pub(crate) fn find(kit: &Kit, listed: &Listed) -> Self {
        let mut found = sessions(kit).unwrap_or_else(|error| {
            tracing::warn!(%error, "boxes that were left over could not be looked for");
            BTreeSet::new()
        });
        for name in listed.names() {
            found.remove(&naming::session_of(name));
        }
        Self(Mutex::new(found))
    }

    pub(crate) async fn clear(&self, inner: &Inner) {
        let found = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for session in found {
            let name = naming::server_of(&session);
            // It may have been added again since it was found, but it is not while it is cleared away.
            let _held = match &name {
                Some(name) => Some(inner.changing.hold(name.as_str()).await),
                None => None,
            };
            let is_back = name.is_some_and(|name| {
                let seats = inner.seats.lock().unwrap_or_else(PoisonError::into_inner);
                seats.contains_key(&name)
            });
            if !is_back {
                clear_away(&inner.kit, &session).await;
            }
        }
        inner.kit.tidy().await;
    }
}

/// Never ends.
pub(crate) async fn every_hour(kit: &Arc<Kit>) {
    loop {
        tokio::time::sleep(EVERY).await;
        kit.tidy().await;
    }
}

/// Boxes of tests and installs that nobody has any more, and their copies. Whether all of them are gone.
pub(crate) async fn clear_temporary(kit: &Arc<Kit>) -> bool {
    let held = Arc::clone(kit);
    let found = match blocking(move || sessions(&held)).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "boxes that nobody has could not be looked for");
            return false;
        }
    };
    let mut are_gone = true;
    for session in found.into_iter().filter(naming::is_temporary) {
        // Whoever has it clears it away.
        if let Some(_held) = kit.temporary.try_hold(session.as_str()) {
            are_gone &= clear_away(kit, &session).await;
        }
    }
    are_gone
}

/// First the box, then the copy: what still writes to it would be in the way. Whether the box is gone.
async fn clear_away(kit: &Kit, session: &SessionId) -> bool {
    if kit.journal.holds(session)
        && let Err(error) = kit.delete_box(session).await
    {
        // The journal remembers it, for the next time.
        tracing::warn!(%session, %error, "a box that was left over could not be removed");
        return false;
    }
    kit.remove_work(session).await;
    true
}

/// All that have a box or a copy.
fn sessions(kit: &Kit) -> io::Result<BTreeSet<SessionId>> {
    let mut sessions = BTreeSet::from_iter(kit.journal.all()?);
    for entry in std::fs::read_dir(&kit.work)? {
        let name = entry?.file_name();
        sessions.extend(name.to_str().and_then(|name| SessionId::new(name).ok()));
    }
    Ok(sessions)
}
