//! Who uses which install, and when one goes.
//!
//! Comes in: names of installs that servers run from. Goes out: room for new ones. Never here: how an
//! install is made.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use boxwood_api::{McpPhase, SessionId};

use super::cache::{Cost, clear_unfinished};
use super::fault::Fault;
use super::kit::{Kit, blocking};
use super::{naming, sweep};

/// An install that no server uses may be wanted again soon: a test is often followed by an addition.
const UNUSED_INSTALLS_STAY: Duration = Duration::from_hours(24);

/// While it is held, the install it is about is not removed.
pub(crate) struct CacheUse {
    kit: Arc<Kit>,
    /// The name of the install.
    pub(crate) key: String,
    /// Nobody will want it again.
    is_the_only: bool,
}

impl CacheUse {
    /// The install goes when this does.
    pub(crate) fn for_this_alone(mut self) -> Self {
        self.is_the_only = true;
        self
    }
}

impl Drop for CacheUse {
    fn drop(&mut self) {
        let mut uses = self.kit.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_the_last = false;
        if let Some(count) = uses.get_mut(&self.key) {
            *count -= 1;
            is_the_last = *count == 0;
        }
        if is_the_last {
            uses.remove(&self.key);
        }
        drop(uses);
        if self.is_the_only || (is_the_last && self.kit.is_unwanted(&self.key)) {
            let (kit, key) = (Arc::clone(&self.kit), self.key.clone());
            self.kit.later(async move { kit.drop_install(key).await });
        }
    }
}

impl Kit {
    pub(crate) fn use_install(self: &Arc<Self>, name: &str) -> CacheUse {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        *uses.entry(name.to_owned()).or_default() += 1;
        CacheUse {
            kit: Arc::clone(self),
            key: name.to_owned(),
            is_the_only: false,
        }
    }

    /// Removes an install of which somebody will have no more, once nobody else has: a server that is
    /// removed still holds on to it at that moment.
    pub(crate) fn drop_when_unused(self: &Arc<Self>, name: String) {
        let mut unwanted = self.unwanted.lock().unwrap_or_else(PoisonError::into_inner);
        unwanted.insert(name.clone());
        drop(unwanted);
        let kit = Arc::clone(self);
        self.later(async move { kit.drop_install(name).await });
    }

    fn is_unwanted(&self, name: &str) -> bool {
        let unwanted = self.unwanted.lock().unwrap_or_else(PoisonError::into_inner);
        unwanted.contains(name)
    }

    /// Removes an install that no server uses and none used when it last ran.
    pub(crate) async fn drop_install(self: &Arc<Self>, name: String) {
        if self.uses_of(&name) > 0 {
            return;
        }
        // Whoever works on it is about to use it, or makes it anew. What is left then is swept later.
        let Some(held) = self.cache.try_hold(&name) else {
            return;
        };
        let kit = Arc::clone(self);
        let removed = blocking(move || {
            let _until_done = held;
            if kit.uses_of(&name) > 0 {
                return Ok(());
            }
            // Those who used it when they last ran say so themselves once they are removed.
            let mut unwanted = kit.unwanted.lock().unwrap_or_else(PoisonError::into_inner);
            unwanted.remove(&name);
            drop(unwanted);
            if kit.is_used(&name) {
                return Ok(());
            }
            kit.cache.remove(&name)
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "an install that nobody uses could not be removed");
        }
    }

    /// This box's install is made anew, at its next start or at a later one where that fails.
    pub(crate) fn reinstall(&self, session: SessionId) {
        let mut asked = self.anew.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(session);
    }

    pub(crate) fn is_to_reinstall(&self, session: &SessionId) -> bool {
        let asked = self.anew.lock().unwrap_or_else(PoisonError::into_inner);
        asked.contains(session)
    }

    /// It is done, or not wanted any more.
    pub(crate) fn reinstalled(&self, session: &SessionId) {
        let mut asked = self.anew.lock().unwrap_or_else(PoisonError::into_inner);
        asked.remove(session);
    }

    /// Before an install: those that nobody uses make room, the least wanted first.
    pub(crate) async fn make_room(self: &Arc<Self>) -> Result<(), Fault> {
        let most = self.settings.cache_bytes;
        let looking = |error: io::Error| {
            Fault::of_storage(McpPhase::DepInstall, "looking at the installs", &error)
        };
        for cost in self.costs().await.map_err(looking)? {
            if self.taken().await.map_err(looking)? <= most {
                return Ok(());
            }
            self.drop_install(cost.name).await;
        }
        let taken = self.taken().await.map_err(looking)?;
        if taken <= most {
            return Ok(());
        }
        let (taken, most) = (taken >> 20, most >> 20);
        let words = format!(
            "the installs of MCP servers take {taken} MiB on the daemon's disk, and {most} MiB are the most there can be"
        );
        let hint = "remove servers that are not needed with `boxwood mcp rm`".to_owned();
        Err(Fault::new(McpPhase::DepInstall, words)
            .with_hint(hint)
            .for_good())
    }

    /// Removes what nobody finishes or has wanted for long, then whatever there is no room for.
    pub(crate) async fn tidy(self: &Arc<Self>) {
        let kit = Arc::clone(self);
        // Found before their boxes are looked for: one that is given up later may have a box that stays.
        let unfinished = blocking(move || kit.cache.unfinished()).await;
        let are_gone = sweep::clear_temporary(self).await;
        let cleared = blocking(move || {
            let unfinished = unfinished?;
            if are_gone {
                clear_unfinished(&unfinished);
            }
            Ok(())
        });
        if let Err(error) = cleared.await {
            tracing::warn!(%error, "unfinished installs could not be looked for");
        }
        match self.costs().await {
            Ok(costs) => {
                for cost in costs.into_iter().filter(is_old) {
                    self.drop_install(cost.name).await;
                }
            }
            Err(error) => tracing::warn!(%error, "old installs could not be looked for"),
        }
        if let Err(fault) = self.make_room().await {
            tracing::warn!(
                message = fault.message,
                "there is no room for further installs"
            );
        }
    }

    async fn costs(self: &Arc<Self>) -> io::Result<Vec<Cost>> {
        let kit = Arc::clone(self);
        blocking(move || kit.cache.costs()).await
    }

    async fn taken(self: &Arc<Self>) -> io::Result<u64> {
        Ok(self.costs().await?.iter().map(|cost| cost.bytes).sum())
    }

    fn uses_of(&self, name: &str) -> usize {
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.get(name).copied().unwrap_or_default()
    }

    fn is_used(&self, name: &str) -> bool {
        if self.uses_of(name) > 0 {
            return true;
        }
        // A list that cannot be read is no proof that nobody uses it.
        let Ok(listed) = self.store.list() else {
            return true;
        };
        listed.names().any(|server| match self.run_record(server) {
            Some(run) => run.cache_key.as_deref() == Some(name),
            // Nor is a server that cannot be read and still has its box.
            None => {
                listed.unread.contains(server) && self.journal.holds(&naming::session_of(server))
            }
        })
    }
}

fn is_old(cost: &Cost) -> bool {
    SystemTime::now()
        .duration_since(cost.last_use)
        .is_ok_and(|unused| unused >= UNUSED_INSTALLS_STAY)
}
