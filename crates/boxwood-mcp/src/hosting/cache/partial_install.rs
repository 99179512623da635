//! An install in progress, removed unless it completes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwood_api::{McpPhase, SessionId};

use super::CacheEntry;
use crate::hosting::boxes::keyed_locks::Held;
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::supervisor::fault::Fault;

/// Dropping it before `keep` removes the installer's box and then the directory, in a background task. If the box
/// cannot be removed, both are left to the cleanup.
pub(crate) struct PartialInstall {
    context: Arc<HostContext>,
    place: PathBuf,
    installer: SessionId,
    held: Option<Held>,
    is_kept: bool,
}

impl PartialInstall {
    /// From here on the box is removed on drop, even though it does not exist yet.
    pub(crate) async fn begin(
        context: &Arc<HostContext>,
        installer: SessionId,
    ) -> Result<Self, Fault> {
        let held = Arc::clone(context);
        let place = blocking(move || held.cache.fresh())
            .await
            .map_err(|error| {
                Fault::from_storage(
                    McpPhase::DepInstall,
                    "creating an install directory",
                    &error,
                )
            })?;
        Ok(Self {
            context: Arc::clone(context),
            place,
            held: context.temporary.try_hold(installer.as_str()),
            installer,
            is_kept: false,
        })
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn installer(&self) -> &SessionId {
        &self.installer
    }

    /// Call after the installer's box is removed. The key stays held until the entry exists, even if the caller
    /// stops waiting.
    pub(crate) async fn keep(
        mut self,
        key: &str,
        bytes: u64,
        held: Held,
    ) -> Result<(CacheEntry, Held), Fault> {
        let (context, place, key) = (
            Arc::clone(&self.context),
            self.place.clone(),
            key.to_owned(),
        );
        // The blocking task owns the directory from here on.
        self.is_kept = true;
        let kept = blocking(move || {
            let kept = context.cache.keep(&place, &key, bytes);
            if kept.is_err() {
                context.cache.discard(&place)?;
            }
            kept.map(|kept| (kept, held))
        });
        kept.await.map_err(|error| {
            Fault::from_storage(McpPhase::DepInstall, "storing an install", &error)
        })
    }
}

impl Drop for PartialInstall {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let context = Arc::clone(&self.context);
        let (place, installer) = (self.place.clone(), self.installer.clone());
        let session_held = self.held.take();
        self.context.spawn(async move {
            if let Err(error) = context.delete_box(&installer).await {
                tracing::warn!(session = %installer, %error, "failed to remove the box of an install");
                // Released before the directory, so that the cleanup sees the box as a leftover too.
                drop(session_held);
                context.cache.leave(&place);
                return;
            }
            let held = Arc::clone(&context);
            if let Err(error) = blocking(move || held.cache.discard(&place)).await {
                tracing::warn!(%error, "failed to remove a partial install; it is retried later");
            }
        });
    }
}
