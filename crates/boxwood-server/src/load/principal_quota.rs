//! Limits the part of the memory budget that requests of one principal may hold.
//!
//! Calls can keep their requests for a long time; without this limit one client could use the budget
//! of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_session::{Budget, SessionError};

/// One principal may hold a quarter of the budget.
const DIVISOR: usize = 4;

/// All callers without a name share one quota.
type Principal = Option<Box<str>>;

#[derive(Clone, Default)]
pub(crate) struct PrincipalQuota(Arc<Mutex<HashMap<Principal, usize>>>);

impl PrincipalQuota {
    /// A single request is always accepted: the overall budget has already admitted it.
    pub(crate) fn take(
        &self,
        principal: Option<&str>,
        bytes: usize,
        budget: &Budget,
    ) -> Result<QuotaGuard, SessionError> {
        let principal: Principal = principal.map(Into::into);
        let mut quota = self.lock();
        let own = quota.get(&principal).copied().unwrap_or_default();
        if own > 0 && bytes > 0 && own.saturating_add(bytes) > budget.limit() / DIVISOR {
            return Err(budget.refuse());
        }
        if bytes > 0 {
            quota.insert(principal.clone(), own + bytes);
        }
        drop(quota);
        Ok(QuotaGuard {
            quota: self.clone(),
            principal,
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases its bytes when dropped.
pub(crate) struct QuotaGuard {
    quota: PrincipalQuota,
    principal: Principal,
    bytes: usize,
}

impl Drop for QuotaGuard {
    fn drop(&mut self) {
        let mut quota = self.quota.lock();
        if let Some(own) = quota.get_mut(&self.principal) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                quota.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_cannot_use_the_whole_budget() {
        let budget = Budget::new(100);
        let quota = PrincipalQuota::default();
        let ann = quota.take(Some("ann"), 20, &budget).expect("room");
        assert!(quota.take(Some("ann"), 6, &budget).is_err());
        assert_eq!(budget.refused(), 1);
        let more = quota.take(Some("ann"), 5, &budget).expect("a quarter");
        let _bob = quota.take(Some("bob"), 25, &budget).expect("own quota");
        drop((ann, more));
        assert!(quota.take(Some("ann"), 25, &budget).is_ok());
        assert_eq!(
            quota.lock().len(),
            1,
            "principals without a charge are removed"
        );
    }

    #[test]
    fn a_single_request_may_exceed_the_quota() {
        let budget = Budget::new(100);
        let quota = PrincipalQuota::default();
        let first = quota.take(None, 60, &budget).expect("alone");
        assert!(quota.take(None, 1, &budget).is_err());
        assert!(
            quota.take(None, 0, &budget).is_ok(),
            "a stream holds no memory"
        );
        drop(first);
        assert!(quota.take(None, 1, &budget).is_ok());
    }
}
