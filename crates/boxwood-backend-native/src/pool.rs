//! A pool of prewarmed boxes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use boxwood_policy::BoxUser;

use crate::Shared;
use crate::prewarmed::Prewarmed;

pub(crate) struct Pool {
    size: usize,
    boxes: Mutex<Vec<Prewarmed>>,
    filling: AtomicBool,
    closed: AtomicBool,
}

/// Resets the flag when filling ends.
struct Filling<'a>(&'a AtomicBool);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Pool {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            boxes: Mutex::default(),
            filling: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Takes a prewarmed box for `user`, if there is one, and refills the pool in the background.
    pub(crate) fn take(&self, shared: &Arc<Shared>, user: BoxUser) -> Option<Prewarmed> {
        let prewarmed = {
            let mut boxes = self.lock();
            let at = boxes.iter().position(|prewarmed| prewarmed.user == user);
            at.map(|at| boxes.swap_remove(at))
        };
        self.fill(shared);
        prewarmed
    }

    /// Starts filling the pool unless it is being filled already.
    pub(crate) fn fill(&self, shared: &Arc<Shared>) {
        if self.size == 0
            || self.closed.load(Ordering::Acquire)
            || self.lock().len() >= self.size
            || self.filling.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let pool = &shared.pool;
            let filling = Filling(&pool.filling);
            while pool.lock().len() < pool.size && !pool.closed.load(Ordering::Acquire) {
                shared.host.last_activity.wait_until_quiet().await;
                match Prewarmed::make(&shared, BoxUser::Box).await {
                    Ok(prewarmed) => pool.lock().push(prewarmed),
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
        while self.filling.load(Ordering::Acquire) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let boxes = std::mem::take(&mut *self.lock());
        for prewarmed in boxes {
            if let Err(error) = prewarmed.resources.clear().await {
                tracing::warn!(%error, "failed to remove a prewarmed box");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Prewarmed>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
