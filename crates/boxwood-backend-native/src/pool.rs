//! A pool of prewarmed boxes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_local::lock;
use boxwood_policy::BoxUser;

use crate::NativeBackend;
use crate::prewarmed::Prewarmed;

pub(crate) struct Pool {
    size: usize,
    boxes: Mutex<Vec<Prewarmed>>,
    /// Held by the task that fills the pool.
    filling: Arc<tokio::sync::Mutex<()>>,
    closed: AtomicBool,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            boxes: Mutex::default(),
            filling: Arc::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Takes a prewarmed box if there is one for `user`, and refills the pool in the background.
    pub(crate) fn take(&self, backend: &NativeBackend, user: BoxUser) -> Option<Prewarmed> {
        let prewarmed = match user {
            BoxUser::Box => lock(&self.boxes).pop(),
            BoxUser::Root => None,
        };
        self.fill(backend);
        prewarmed
    }

    /// Starts filling the pool unless it is being filled already.
    pub(crate) fn fill(&self, backend: &NativeBackend) {
        if self.size == 0
            || self.closed.load(Ordering::Acquire)
            || lock(&self.boxes).len() >= self.size
        {
            return;
        }
        let Ok(filling) = Arc::clone(&self.filling).try_lock_owned() else {
            return;
        };
        let backend = backend.clone();
        tokio::spawn(async move {
            let pool = &backend.pool;
            while lock(&pool.boxes).len() < pool.size && !pool.closed.load(Ordering::Acquire) {
                backend.host.last_activity.wait_until_quiet().await;
                match Prewarmed::make(&backend, BoxUser::Box).await {
                    Ok(prewarmed) => lock(&pool.boxes).push(prewarmed),
                    Err(error) => {
                        // The next start creates its own box and reports the error.
                        tracing::warn!(%error, "failed to create a prewarmed box");
                        break;
                    }
                }
            }
            drop(filling);
        });
    }

    /// Removes all prewarmed boxes and stops creating them.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::Release);
        // The filling task checks the flag after each box.
        let _filled = self.filling.lock().await;
        let boxes = std::mem::take(&mut *lock(&self.boxes));
        for prewarmed in boxes {
            if let Err(error) = prewarmed.resources.clear().await {
                tracing::warn!(%error, "failed to remove a prewarmed box");
            }
        }
    }
}
