//! Blank boxes, made ahead of time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use boxwood_policy::BoxUser;

use crate::Shared;
use crate::blank::Blank;

pub(crate) struct Pool {
    size: usize,
    blanks: Mutex<Vec<Blank>>,
    filling: AtomicBool,
    closed: AtomicBool,
}

/// Marks the end of filling, however it ends.
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
            blanks: Mutex::default(),
            filling: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// A waiting blank, and a refill in the background.
    pub(crate) fn take(&self, shared: &Arc<Shared>, user: BoxUser) -> Option<Blank> {
        let blank = {
            let mut blanks = self.lock();
            let at = blanks.iter().position(|blank| blank.user == user);
            at.map(|at| blanks.swap_remove(at))
        };
        self.fill(shared);
        blank
    }

    /// Starts filling up, if nobody does already.
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
                shared.host.pulse.quiet().await;
                match Blank::make(&shared, BoxUser::Box).await {
                    Ok(blank) => pool.lock().push(blank),
                    Err(error) => {
                        // The next start makes its own and reports what is wrong.
                        tracing::warn!(%error, "a blank box could not be made");
                        break;
                    }
                }
            }
            drop(filling);
        });
    }

    /// Removes every blank; none is made any more.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::Release);
        // Whoever is filling sees the mark within one blank.
        while self.filling.load(Ordering::Acquire) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let blanks = std::mem::take(&mut *self.lock());
        for blank in blanks {
            if let Err(error) = blank.remains.clear().await {
                tracing::warn!(%error, "a blank box could not be removed");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Blank>> {
        self.blanks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
