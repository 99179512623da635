//! Starting takes turns, so that many servers do not slow each other down until all of them time out.
//!
//! First come, first served. A turn ends when it is dropped.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

/// Held while a server starts.
pub(crate) struct Turn(#[expect(dead_code, reason = "it is held")] Option<OwnedSemaphorePermit>);

impl Turns {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once.clamp(1, 1_000))))
    }

    /// None when others have to be waited for.
    pub(crate) fn take_now(&self) -> Option<Turn> {
        let turn = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(Turn(Some(turn)))
    }

    pub(crate) async fn take(&self) -> Turn {
        // Nobody closes the semaphore, so there is a permit in the end.
        Turn(Arc::clone(&self.0).acquire_owned().await.ok())
    }
}
