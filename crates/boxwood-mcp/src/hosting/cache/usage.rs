//! Reference counts of cached installs, and their eviction.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use boxwood_api::McpPhase;

use super::{Cost, clear_unfinished};
use crate::hosting::boxes::cleanup;
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::supervisor::fault::Fault;
use crate::hosting::supervisor::run_record::RunRecord;

/// How long an unused install is kept. A test is often followed by adding the server.
const UNUSED_INSTALLS_STAY: Duration = Duration::from_hours(24);

/// Keeps an install from being removed.
pub(crate) struct CacheRef {
    context: Arc<HostContext>,
    /// Name of the cache entry.
    pub(crate) key: String,
    remove_on_drop: bool,
}

impl CacheRef {
    pub(crate) fn removed_on_drop(mut self) -> Self {
        self.remove_on_drop = true;
        self
    }
}

impl Drop for CacheRef {
    fn drop(&mut self) {
        let mut uses = self
            .context
            .uses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = uses.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                uses.remove(&self.key);
            }
        }
        drop(uses);
        if self.remove_on_drop {
            let (context, name) = (Arc::clone(&self.context), self.key.clone());
            self.context.spawn(async move {
                context.drop_install(name).await;
            });
        }
    }
}

impl HostContext {
    pub(crate) fn use_install(self: &Arc<Self>, name: &str) -> CacheRef {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        *uses.entry(name.to_owned()).or_default() += 1;
        CacheRef {
            context: Arc::clone(self),
            key: name.to_owned(),
            remove_on_drop: false,
        }
    }

    /// Removes an install without references that no stored server used at its last run. Returns true if it is gone.
    pub(crate) async fn drop_install(self: &Arc<Self>, name: String) -> bool {
        // The key is held by an install in progress. The periodic cleanup removes what remains.
        let Some(held) = self.cache.try_hold(&name) else {
            return false;
        };
        let context = Arc::clone(self);
        let removed = blocking(move || {
            let _until_done = held;
            if context.is_used(&name) {
                return Ok(false);
            }
            context.cache.remove(&name).map(|()| true)
        });
        removed.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to remove an unused install");
            false
        })
    }

    /// Evicts unused installs, least recently used first, until the cache is within its limit.
    pub(crate) async fn make_room(self: &Arc<Self>) -> Result<(), Fault> {
        let most = self.settings.cache_bytes;
        let costs = self.costs().await.map_err(|error| {
            Fault::from_storage(McpPhase::DepInstall, "listing installs", &error)
        })?;
        let mut taken: u64 = costs.iter().map(|cost| cost.bytes).sum();
        for cost in costs {
            if taken > most && self.drop_install(cost.name).await {
                taken -= cost.bytes;
            }
        }
        if taken <= most {
            return Ok(());
        }
        let (taken, most) = (taken >> 20, most >> 20);
        let words = format!(
            "the installs of MCP servers use {taken} MiB of disk space; the limit is {most} MiB"
        );
        let hint = "remove servers that are not needed with `boxwood mcp rm`".to_owned();
        Err(Fault::new(McpPhase::DepInstall, words)
            .with_hint(hint)
            .not_retryable())
    }

    /// Removes partial, old and surplus installs.
    pub(crate) async fn tidy(self: &Arc<Self>) {
        let context = Arc::clone(self);
        // Listed before the boxes, because an install abandoned later may still have its box.
        let partial = blocking(move || context.cache.partial()).await;
        let are_gone = cleanup::clear_temporary(self).await;
        let cleared = blocking(move || {
            let partial = partial?;
            if are_gone {
                clear_unfinished(&partial);
            }
            Ok(())
        });
        if let Err(error) = cleared.await {
            tracing::warn!(%error, "failed to list partial installs");
        }
        match self.costs().await {
            Ok(costs) => {
                for cost in costs.into_iter().filter(is_old) {
                    self.drop_install(cost.name).await;
                }
            }
            Err(error) => tracing::warn!(%error, "failed to list old installs"),
        }
        if let Err(fault) = self.make_room().await {
            tracing::warn!(
                message = fault.message,
                "the install cache is over its limit"
            );
        }
    }

    async fn costs(self: &Arc<Self>) -> io::Result<Vec<Cost>> {
        let context = Arc::clone(self);
        blocking(move || context.cache.costs()).await
    }

    fn is_used(&self, name: &str) -> bool {
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.contains_key(name) {
            return true;
        }
        drop(uses);
        // If the definitions cannot be read, assume that the install is used.
        let Ok(listed) = self.store.list() else {
            return true;
        };
        let run_record = |server| self.store.run_record::<RunRecord>(server);
        listed.names().any(|server| match run_record(server) {
            Some(run) => run.cache_key.as_deref() == Some(name),
            // The same for a server whose definition cannot be read.
            None => listed.unread.contains(server),
        })
    }
}

fn is_old(cost: &Cost) -> bool {
    SystemTime::now()
        .duration_since(cost.last_use)
        .is_ok_and(|unused| unused >= UNUSED_INSTALLS_STAY)
}
