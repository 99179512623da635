//! Which of one client's calls a log line is told to, on a process that several clients share.
//!
//! Whether a line is this client's at all is known where it was read. Here: of calls that overlap, the
//! oldest hears it, and it is heard once.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wire::Principal;

type Key = (u64, Principal);

#[derive(Clone, Default)]
pub(crate) struct Logs {
    calls: Arc<Mutex<Calls>>,
}

#[derive(Default)]
struct Calls {
    last: u64,
    hearing: HashMap<Key, BTreeSet<u64>>,
}

/// One call that wants to hear logs.
pub(crate) struct Hearing {
    logs: Logs,
    key: Key,
    ticket: u64,
}

impl Logs {
    pub(crate) fn join(&self, connection: u64, principal: Principal) -> Hearing {
        let key = (connection, principal);
        let mut calls = self.lock();
        calls.last += 1;
        let ticket = calls.last;
        calls.hearing.entry(key.clone()).or_default().insert(ticket);
        Hearing {
            logs: self.clone(),
            key,
            ticket,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hearing {
    /// Whether none of this client's calls that hear logs is older.
    pub(crate) fn is_first(&self) -> bool {
        let calls = self.logs.lock();
        let first = calls.hearing.get(&self.key).and_then(BTreeSet::first);
        first == Some(&self.ticket)
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let mut calls = self.logs.lock();
        if let Some(tickets) = calls.hearing.get_mut(&self.key) {
            tickets.remove(&self.ticket);
            if tickets.is_empty() {
                calls.hearing.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_clients_calls_the_oldest_hears() {
        let logs = Logs::default();
        let first = logs.join(1, Some("ann".into()));
        let second = logs.join(1, Some("ann".into()));
        let other = logs.join(1, Some("bob".into()));
        let elsewhere = logs.join(2, Some("ann".into()));
        assert!(first.is_first() && !second.is_first());
        assert!(other.is_first() && elsewhere.is_first());
        drop(first);
        assert!(second.is_first());
    }
}
