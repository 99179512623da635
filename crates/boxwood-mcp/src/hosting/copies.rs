//! Copies of directories that servers work on.
//!
//! Comes in: directories that were judged. Goes out: a copy for one server. Never here: what is copied
//! and what is not. A copy cannot be taken from its thread, only asked to stop; so the next one for the
//! same server waits until it has, and nothing is removed under it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_api::SessionId;

use super::kit::{Kit, blocking};
use super::launch::{self, LaunchError, Staging};
use super::remove_tree::remove_tree;

/// Threads that a file system which answers no more can take.
pub(crate) const AT_ONCE: usize = 16;

/// Tells a copy that nobody waits for it any more.
struct StopWhenDropped(Arc<AtomicBool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A copy of a server's directories.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) place: PathBuf,
    /// Files and directories that a mount would not show.
    pub(crate) left_out: usize,
}

impl Kit {
    /// Looks at directories of the host. Their file system may never answer, and then the thread is lost:
    /// so there are only so many.
    pub(crate) async fn on_host<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let room = Arc::clone(&self.copy_room).acquire_owned().await;
        let room = room.map_err(io::Error::other)?;
        blocking(move || {
            let _until_done = room;
            Ok(look())
        })
        .await
    }

    /// Where the copy for one server is made.
    fn work_of(&self, session: &SessionId) -> PathBuf {
        self.work.join(session.as_str())
    }

    /// In place of an older one. Dropping the future ends the copy soon, and leaves nothing of it.
    pub(crate) async fn copy(
        &self,
        session: &SessionId,
        parts: Vec<(Staging, Arc<OwnedFd>)>,
    ) -> Result<Copied, LaunchError> {
        let place = self.work_of(session);
        let failed = |source| LaunchError::Copy {
            operation: "begin to copy to",
            path: place.clone(),
            source,
        };
        let held = self.copies.hold(session.as_str()).await;
        let stop = StopWhenDropped(Arc::default());
        let (stopped, to) = (Arc::clone(&stop.0), place.clone());
        let min_free = self.settings.min_free_bytes;
        let copied = self.on_host(move || {
            let _until_done = held;
            launch::stage(&parts, &to, min_free, &stopped)
        });
        let left_out = copied.await.map_err(failed)??;
        Ok(Copied { place, left_out })
    }

    /// All that is kept for a server, or for a test, that does not come back.
    pub(crate) async fn remove_work(&self, session: &SessionId) {
        self.reinstalled(session);
        self.remove_copy(session).await;
    }

    /// After the box that worked on it is gone.
    pub(crate) async fn remove_copy(&self, session: &SessionId) {
        let held = self.copies.hold(session.as_str());
        let Ok(held) = tokio::time::timeout(self.settings.runtime_patience, held).await else {
            tracing::warn!(%session, "a copy of a server's directory does not end, and stays");
            return;
        };
        let place = self.work_of(session);
        let removed = blocking(move || {
            let _until_done = held;
            remove_tree(&place)
        });
        if let Err(error) = removed.await {
            tracing::warn!(%session, %error, "the copy of a server's directory could not be removed");
        }
    }
}
