//! Mutual exclusion per name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

type Lock = tokio::sync::Mutex<()>;

/// Locks exist only while a name is in use.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<HashMap<String, Weak<Lock>>>);

/// Releases the lock when dropped.
pub(crate) struct Held(#[expect(dead_code, reason = "released on drop")] OwnedMutexGuard<()>);

impl Locks {
    pub(crate) async fn hold(&self, name: &str) -> Held {
        Held(self.lock(name).lock_owned().await)
    }

    /// `None` while the name is locked.
    pub(crate) fn try_hold(&self, name: &str) -> Option<Held> {
        self.lock(name).try_lock_owned().ok().map(Held)
    }

    fn lock(&self, name: &str) -> Arc<Lock> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(Lock::new(()));
        locks.insert(name.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_name_is_locked_exclusively() {
        let locks = Locks::default();
        let first = locks.hold("k").await;
        let _other = locks.hold("other").await;
        assert!(locks.hold("k").now_or_never().is_none());
        assert!(locks.try_hold("k").is_none());
        drop(first);
        assert!(locks.try_hold("k").is_some());
        assert!(locks.hold("k").now_or_never().is_some());
    }
}
