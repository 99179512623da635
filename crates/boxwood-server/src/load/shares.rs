//! How much of the budget of bytes one principal has.
//!
//! Comes in: who has sent how much. Goes out: a share, or a refusal. Calls may hold on to their requests for
//! as long as clients like; no client takes the room of all others that way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_session::{Budget, SessionError};

/// One principal has this part of the budget.
const PART: usize = 4;

/// Whoever has no name has one share together with all like it.
type Who = Option<Box<str>>;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Shares(Arc<Mutex<HashMap<Who, usize>>>);

impl Shares {
    /// One request alone is always taken: the budget has let it in, however small that is.
    pub(crate) fn take(
        &self,
        principal: Option<&str>,
        bytes: usize,
        budget: &Budget,
    ) -> Result<Share, SessionError> {
        let who: Who = principal.map(Into::into);
        let mut shares = self.lock();
        let own = shares.get(&who).copied().unwrap_or_default();
        if own > 0 && bytes > 0 && own.saturating_add(bytes) > budget.limit() / PART {
            return Err(budget.refuse());
        }
        if bytes > 0 {
            shares.insert(who.clone(), own + bytes);
        }
        drop(shares);
        Ok(Share {
            shares: self.clone(),
            who,
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Who, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Given back when dropped.
pub(crate) struct Share {
    shares: Shares,
    who: Who,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shares.lock();
        if let Some(own) = shares.get_mut(&self.who) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                shares.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_leaves_room_for_others() {
        let budget = Budget::new(100);
        let shares = Shares::default();
        let ann = shares.take(Some("ann"), 20, &budget).expect("room");
        assert!(shares.take(Some("ann"), 6, &budget).is_err());
        assert_eq!(budget.refused(), 1);
        let more = shares.take(Some("ann"), 5, &budget).expect("a quarter");
        let _bob = shares.take(Some("bob"), 25, &budget).expect("his own");
        drop((ann, more));
        assert!(shares.take(Some("ann"), 25, &budget).is_ok());
        assert_eq!(
            shares.lock().len(),
            1,
            "those who have nothing are forgotten"
        );
    }

    #[test]
    fn a_small_budget_still_takes_one_request_at_a_time() {
        let budget = Budget::new(100);
        let shares = Shares::default();
        let first = shares.take(None, 60, &budget).expect("alone");
        assert!(shares.take(None, 1, &budget).is_err());
        assert!(
            shares.take(None, 0, &budget).is_ok(),
            "a stream weighs nothing"
        );
        drop(first);
        assert!(shares.take(None, 1, &budget).is_ok());
    }
}
