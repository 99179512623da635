//! When a session was last used, and whether something in it is running now.
//!
//! Two clocks: the monotonic one decides, the wall clock is for people.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::time::Instant;

pub(crate) struct Activity {
    last_used: Mutex<(Instant, Timestamp)>,
    running: AtomicUsize,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            last_used: Mutex::new((Instant::now(), Timestamp::now())),
            running: AtomicUsize::new(0),
        }
    }

    pub(crate) fn touch(&self) {
        *lock(&self.last_used) = (Instant::now(), Timestamp::now());
    }

    pub(crate) fn last_used_at(&self) -> Timestamp {
        lock(&self.last_used).1
    }

    pub(crate) fn last_used(&self) -> Instant {
        lock(&self.last_used).0
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }
}

/// Something runs in the session for as long as this lives, so the reaper leaves it alone.
pub(crate) struct Running(Arc<Activity>);

impl Running {
    pub(crate) fn new(activity: &Arc<Activity>) -> Self {
        activity.running.fetch_add(1, Ordering::AcqRel);
        activity.touch();
        Self(Arc::clone(activity))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Touched before it counts as idle: the other way round the reaper could look in between.
        self.0.touch();
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Locks, also after a panic elsewhere: nothing in this crate leaves a value half changed while it
/// holds a lock, and one bug must not take every other session down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
