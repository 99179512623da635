//! Permits for running streamed commands and managed processes.
//!
//! There is no queue, because the waiting time would be unknown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::fair_queue::Key;
use crate::session::activity::lock;

#[derive(Clone)]
pub(crate) struct RunPermits(Arc<Inner>);

struct Inner {
    limit: usize,
    per_session: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_session: HashMap<Key, usize>,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPermit {
    Anywhere(usize),
    InSession(usize),
}

impl RunPermits {
    pub(crate) fn new(limit: usize, per_session: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            per_session,
            taken: Mutex::default(),
        }))
    }

    pub(crate) fn take(&self, key: Key) -> Result<RunPermit, NoPermit> {
        let mut taken = lock(&self.0.taken);
        if taken.all >= self.0.limit {
            return Err(NoPermit::Anywhere(self.0.limit));
        }
        let session_count = taken.by_session.get(&key).copied().unwrap_or_default();
        if session_count >= self.0.per_session {
            return Err(NoPermit::InSession(self.0.per_session));
        }
        Ok(self.count(&mut taken, key))
    }

    /// For adopted programs: counts them without a limit.
    pub(crate) fn take_unlimited(&self, key: Key) -> RunPermit {
        self.count(&mut lock(&self.0.taken), key)
    }

    pub(crate) fn taken(&self) -> usize {
        lock(&self.0.taken).all
    }

    fn count(&self, taken: &mut Taken, key: Key) -> RunPermit {
        taken.all += 1;
        *taken.by_session.entry(key).or_default() += 1;
        RunPermit {
            permits: self.clone(),
            key,
        }
    }
}

/// A permit; released when dropped.
pub(crate) struct RunPermit {
    permits: RunPermits,
    key: Key,
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let mut taken = lock(&self.permits.0.taken);
        taken.all -= 1;
        if let Some(session_count) = taken.by_session.get_mut(&self.key) {
            *session_count -= 1;
            if *session_count == 0 {
                taken.by_session.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_counted_and_released() {
        let permits = RunPermits::new(3, 2);
        let first = permits.take(1).ok();
        let second = permits.take(1).ok();
        assert_eq!(permits.take(1).err(), Some(NoPermit::InSession(2)));
        let third = permits.take(2).ok();
        assert_eq!(permits.take(2).err(), Some(NoPermit::Anywhere(3)));
        let adopted = permits.take_unlimited(2);
        assert_eq!(permits.taken(), 4);
        drop((first, second, third, adopted));
        assert_eq!(permits.taken(), 0);
        assert!(lock(&permits.0.taken).by_session.is_empty());
    }
}
