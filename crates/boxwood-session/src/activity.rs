//! When a session was last used, and whether something in it is running now.
//!
//! Two clocks: the monotonic one decides, the wall clock is for people.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::freeze::Frost;

pub(crate) struct Activity {
    last_used: Mutex<(Instant, Timestamp)>,
    running: AtomicUsize,
    attended: AtomicUsize,
    began: Instant,
    /// Milliseconds since it began, when a program last said or was told something.
    stirred_ms: AtomicU64,
    pub(crate) frost: Frost,
}

impl Activity {
    pub(crate) fn new(frost: Frost) -> Self {
        Self {
            last_used: Mutex::new((Instant::now(), Timestamp::now())),
            running: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            began: Instant::now(),
            stirred_ms: AtomicU64::new(0),
            frost,
        }
    }

    pub(crate) fn touch(&self) {
        *lock(&self.last_used) = (Instant::now(), Timestamp::now());
    }

    /// A program of the session said or was told something. That is no use of the session, but it
    /// is not asleep either. Cheap enough for every piece of output.
    pub(crate) fn stir(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.stirred_ms.store(since, Ordering::Relaxed);
    }

    pub(crate) fn last_used_at(&self) -> Timestamp {
        lock(&self.last_used).1
    }

    pub(crate) fn last_used(&self) -> Instant {
        lock(&self.last_used).0
    }

    /// Since when nobody has used the session and no program of it has stirred.
    pub(crate) fn idle_since(&self) -> Instant {
        let stirred = Duration::from_millis(self.stirred_ms.load(Ordering::Relaxed));
        self.last_used().max(self.began + stirred)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }

    /// Somebody talks to a program of it.
    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::SeqCst) > 0
    }
}

/// Something runs in the session for as long as this lives, so the reaper leaves it alone.
pub(crate) struct Running(Arc<Activity>);

impl Running {
    pub(crate) fn new(activity: &Arc<Activity>) -> Self {
        activity.running.fetch_add(1, Ordering::SeqCst);
        activity.touch();
        Self(Arc::clone(activity))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Touched before it counts as idle: the other way round the reaper could look in between.
        self.0.touch();
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Somebody talks to a program of the session for as long as this lives, so it is not frozen. Thaw
/// after it was made.
pub(crate) struct Attended(Arc<Activity>);

impl Attended {
    pub(crate) fn new(activity: &Arc<Activity>) -> Self {
        activity.attended.fetch_add(1, Ordering::SeqCst);
        activity.touch();
        Self(Arc::clone(activity))
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.touch();
        self.0.attended.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Locks, also after a panic elsewhere: nothing in this crate leaves a value half changed while it
/// holds a lock, and one bug must not take every other session down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
