//! When a session was last used, and whether a program is running in it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::session::freeze::FreezeState;

pub(crate) struct Activity {
    last_used: Mutex<(Instant, Timestamp)>,
    running: AtomicUsize,
    attended: AtomicUsize,
    began: Instant,
    /// Milliseconds since `began` at the last input or output of a program.
    last_io_ms: AtomicU64,
    pub(crate) freeze_state: FreezeState,
}

impl Activity {
    pub(crate) fn new(freeze_state: FreezeState) -> Self {
        Self {
            last_used: Mutex::new((Instant::now(), Timestamp::now())),
            running: AtomicUsize::new(0),
            attended: AtomicUsize::new(0),
            began: Instant::now(),
            last_io_ms: AtomicU64::new(0),
            freeze_state,
        }
    }

    pub(crate) fn touch(&self) {
        *lock(&self.last_used) = (Instant::now(), Timestamp::now());
    }

    /// Called for input and output of programs. It is not a use of the session, but the box must not be
    /// frozen.
    pub(crate) fn record_io(&self) {
        let elapsed_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_io_ms.store(elapsed_ms, Ordering::Relaxed);
    }

    pub(crate) fn last_used_at(&self) -> Timestamp {
        lock(&self.last_used).1
    }

    pub(crate) fn last_used(&self) -> Instant {
        lock(&self.last_used).0
    }

    /// Since when the session was not used and its programs had no input or output.
    pub(crate) fn idle_since(&self) -> Instant {
        let last_io = Duration::from_millis(self.last_io_ms.load(Ordering::Relaxed));
        self.last_used().max(self.began + last_io)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }

    /// Returns true if a client is attached to a program.
    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::SeqCst) > 0
    }
}

/// A use of the session, counted while this exists.
pub(crate) struct Use {
    activity: Arc<Activity>,
    counter: fn(&Activity) -> &AtomicUsize,
}

impl Use {
    /// A request or a program uses the session, so the reaper keeps it.
    pub(crate) fn running(activity: &Arc<Activity>) -> Self {
        Self::new(activity, |activity| &activity.running)
    }

    /// A client is attached to a program, so the box is not frozen. Thaw after creating it.
    pub(crate) fn attended(activity: &Arc<Activity>) -> Self {
        Self::new(activity, |activity| &activity.attended)
    }

    fn new(activity: &Arc<Activity>, counter: fn(&Activity) -> &AtomicUsize) -> Self {
        counter(activity).fetch_add(1, Ordering::SeqCst);
        activity.touch();
        Self {
            activity: Arc::clone(activity),
            counter,
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // Touched first: otherwise the reaper could run in between.
        self.activity.touch();
        (self.counter)(&self.activity).fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ignores poisoning: no value in this crate is inconsistent while a lock is held, and one bug must not
/// stop all sessions.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
