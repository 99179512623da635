//! A box of a test or an install, removed on drop.

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_agent::Answer;
use boxwood_api::SessionId;

use super::keyed_locks::Held;
use crate::hosting::context::{HostContext, blocking};

/// If the box cannot be removed, it and its directory are left to the cleanup.
pub(crate) struct TemporaryBox {
    context: Arc<HostContext>,
    session: SessionId,
    /// The partial install that the box writes to, removed after the box.
    directory: Option<PathBuf>,
    held: Option<Held>,
    is_removed: bool,
}

impl TemporaryBox {
    /// For a box that is about to be created: it is removed on drop even if its creation was cancelled.
    pub(crate) fn named(context: &Arc<HostContext>, session: SessionId) -> Self {
        Self {
            context: Arc::clone(context),
            held: context.temporary.try_hold(session.as_str()),
            session,
            directory: None,
            is_removed: false,
        }
    }

    pub(crate) fn with_directory(mut self, directory: PathBuf) -> Self {
        self.directory = Some(directory);
        self
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    /// Waits until the box is removed. If this future is dropped or fails, dropping `self` tries again.
    pub(crate) async fn delete(&mut self) -> Answer<()> {
        let deleted = self.context.delete_box(&self.session).await;
        self.is_removed |= deleted.is_ok();
        deleted
    }

    /// The directory is no longer removed.
    pub(crate) fn keep_directory(&mut self) {
        self.directory = None;
    }
}

impl Drop for TemporaryBox {
    fn drop(&mut self) {
        if self.is_removed && self.directory.is_none() {
            return;
        }
        let (context, session) = (Arc::clone(&self.context), self.session.clone());
        let (directory, held) = (self.directory.take(), self.held.take());
        self.context.spawn(async move {
            if let Err(error) = context.delete_box(&session).await {
                tracing::warn!(%session, %error, "failed to remove a temporary box; it is retried later");
                // Released before the directory, so that the cleanup sees the box as a leftover too.
                drop(held);
                if let Some(directory) = directory {
                    context.cache.leave(&directory);
                }
                return;
            }
            let Some(directory) = directory else {
                return;
            };
            if let Err(error) = blocking(move || context.cache.discard(&directory)).await {
                tracing::warn!(%error, "failed to remove a partial install; it is retried later");
            }
        });
    }
}
