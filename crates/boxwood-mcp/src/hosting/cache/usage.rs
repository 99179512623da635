//! Reference counts of cached installs, and their eviction.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use boxwood_api::McpPhase;

use super::{CachedInstall, remove_partial};
use crate::hosting::boxes::cleanup;
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::supervisor::fault::Fault;
use crate::hosting::supervisor::run_record::RunRecord;

/// How long an unused install is kept. A test is often followed by adding the server.
const UNUSED_LIFETIME: Duration = Duration::from_hours(24);

/// Keeps an install from being removed.
pub(crate) struct CacheRef {
    context: Arc<HostContext>,
    /// Name of the cache entry.
    pub(crate) name: String,
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
        if let Some(count) = uses.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                uses.remove(&self.name);
            }
        }
        drop(uses);
        if self.remove_on_drop {
            let (context, name) = (Arc::clone(&self.context), self.name.clone());
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
            name: name.to_owned(),
            remove_on_drop: false,
        }
    }

    /// Removes an install unless it is referenced or a stored server used it at its last run. Returns true if it was
    /// removed.
    pub(crate) async fn drop_install(self: &Arc<Self>, name: String) -> bool {
        // While an install with this key is in progress, the removal is left to the periodic cleanup.
        let Some(held) = self.cache.try_hold(&name) else {
            return false;
        };
        let (context, install) = (Arc::clone(self), name.clone());
        let removed = blocking(move || {
            let _held = held;
            if context.is_used(&name) {
                return Ok(false);
            }
            context.cache.remove(&name).map(|()| true)
        });
        removed.await.unwrap_or_else(|error| {
            tracing::warn!(install, %error, "failed to remove an unused install");
            false
        })
    }

    /// Evicts unused installs, least recently used first, until the cache is within its limit.
    pub(crate) async fn make_room(self: &Arc<Self>) -> Result<(), Fault> {
        let limit = self.settings.cache_bytes;
        let installs = self.installs().await.map_err(|error| {
            Fault::from_storage(McpPhase::DepInstall, "listing installs", &error)
        })?;
        let mut used: u64 = installs.iter().map(|install| install.bytes).sum();
        for install in installs {
            if used > limit && self.drop_install(install.name).await {
                used -= install.bytes;
            }
        }
        if used <= limit {
            return Ok(());
        }
        let (used, limit) = (used >> 20, limit >> 20);
        let message = format!(
            "the installs of MCP servers use {used} MiB of disk space; the limit is {limit} MiB"
        );
        let hint = "remove servers that are not needed with `boxwood mcp rm`".to_owned();
        Err(Fault::new(McpPhase::DepInstall, message)
            .with_hint(hint)
            .not_retryable())
    }

    /// Removes partial, old and surplus installs.
    pub(crate) async fn tidy(self: &Arc<Self>) {
        let context = Arc::clone(self);
        // Listed before the boxes are removed: a directory that becomes a leftover after that may still have its box.
        let partial = blocking(move || context.cache.partial()).await;
        let all_removed = cleanup::clear_temporary(self).await;
        let cleared = blocking(move || {
            let partial = partial?;
            if all_removed {
                remove_partial(&partial);
            }
            Ok(())
        });
        if let Err(error) = cleared.await {
            tracing::warn!(%error, "failed to list partial installs");
        }
        match self.installs().await {
            Ok(installs) => {
                for install in installs.into_iter().filter(is_old) {
                    self.drop_install(install.name).await;
                }
            }
            Err(error) => tracing::warn!(%error, "failed to list old installs"),
        }
        if let Err(fault) = self.make_room().await {
            tracing::warn!(
                error = fault.message,
                "failed to free space in the install cache"
            );
        }
    }

    async fn installs(self: &Arc<Self>) -> io::Result<Vec<CachedInstall>> {
        let context = Arc::clone(self);
        blocking(move || context.cache.installs()).await
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
            // A server whose definition cannot be read may use any install.
            None => listed.unread.contains(server),
        })
    }
}

fn is_old(install: &CachedInstall) -> bool {
    SystemTime::now()
        .duration_since(install.last_use)
        .is_ok_and(|unused| unused >= UNUSED_LIFETIME)
}
