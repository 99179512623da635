//! Counts what each of several keys holds of a shared resource.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
pub(crate) struct Shares<K>(Arc<Mutex<HashMap<K, usize>>>);

impl<K: Eq + Hash + Clone> Shares<K> {
    /// Adds `amount` to what `key` holds if `is_allowed` accepts what it holds and what all hold
    /// together, each before the addition.
    pub(super) fn take(
        &self,
        key: K,
        amount: usize,
        is_allowed: impl FnOnce(usize, usize) -> bool,
    ) -> Option<Share<K>> {
        let mut held = self.lock();
        let own = held.get(&key).copied().unwrap_or_default();
        if !is_allowed(own, held.values().sum()) {
            return None;
        }
        if amount > 0 {
            held.insert(key.clone(), own + amount);
        }
        drop(held);
        Some(Share {
            shares: self.clone(),
            key,
            amount,
        })
    }
}

impl<K> Shares<K> {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Released when dropped.
pub(crate) struct Share<K: Eq + Hash> {
    shares: Shares<K>,
    key: K,
    amount: usize,
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = self.shares.lock();
        if let Some(own) = held.get_mut(&self.key) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                held.remove(&self.key);
            }
        }
    }
}
