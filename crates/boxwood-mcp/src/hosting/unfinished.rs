//! An install that is being made, and what becomes of it when it is not kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwood_api::{McpPhase, SessionId};

use super::cache::Kept;
use super::fault::Fault;
use super::kit::{Kit, blocking};
use super::locks::Held;

/// Dropped before it is kept, it goes: first the box that fills it, then what is there; a box that stays
/// keeps both for whoever clears up. Neither is done on the caller's thread: a hundred thousand files take
/// their time.
pub(crate) struct Unfinished {
    kit: Arc<Kit>,
    place: PathBuf,
    installer: SessionId,
    held: Option<Held>,
    is_kept: bool,
}

impl Unfinished {
    /// Nothing is made in the box's name yet; from now on it is cleared away.
    pub(crate) async fn begin(kit: &Arc<Kit>, installer: SessionId) -> Result<Self, Fault> {
        let held = Arc::clone(kit);
        let place = blocking(move || held.cache.fresh())
            .await
            .map_err(|error| {
                Fault::of_storage(McpPhase::DepInstall, "making room for an install", &error)
            })?;
        Ok(Self {
            kit: Arc::clone(kit),
            place,
            held: kit.temporary.try_hold(installer.as_str()),
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

    /// Its box is gone, and it is whole. The key stays held until it is kept, also when nobody waits for
    /// that any more.
    pub(crate) async fn keep(
        mut self,
        key: &str,
        bytes: u64,
        held: Held,
    ) -> Result<(Kept, Held), Fault> {
        let (kit, place, key) = (Arc::clone(&self.kit), self.place.clone(), key.to_owned());
        // From here on it is the thread's: nobody may remove what is just getting its name.
        self.is_kept = true;
        let kept = blocking(move || {
            let kept = kit.cache.keep(&place, &key, bytes);
            if kept.is_err() {
                kit.cache.discard(&place)?;
            }
            kept.map(|kept| (kept, held))
        });
        kept.await
            .map_err(|error| Fault::of_storage(McpPhase::DepInstall, "keeping an install", &error))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let kit = Arc::clone(&self.kit);
        let (place, installer) = (self.place.clone(), self.installer.clone());
        let session_held = self.held.take();
        self.kit.later(async move {
            if let Err(error) = kit.delete_box(&installer).await {
                tracing::warn!(session = %installer, %error, "the box of an install could not be removed");
                // In this order: what is nobody's must not have a box that seems to be somebody's.
                drop(session_held);
                kit.cache.leave(&place);
                return;
            }
            let held = Arc::clone(&kit);
            if let Err(error) = blocking(move || held.cache.discard(&place)).await {
                tracing::warn!(%error, "an unfinished install could not be removed yet");
            }
        });
    }
}
