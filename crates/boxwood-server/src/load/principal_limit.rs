//! Limits the part of the memory budget that requests of one principal may hold.
//!
//! Calls can keep their requests for a long time; without this limit one client could use the budget
//! of all.

use boxwood_session::{Budget, SessionError};

use super::shares::{Share, Shares};

/// One principal may hold a quarter of the budget.
const DIVISOR: usize = 4;

/// All callers without a name share one limit.
type Principal = Option<Box<str>>;

#[derive(Clone, Default)]
pub(crate) struct PrincipalLimit(Shares<Principal>);

impl PrincipalLimit {
    /// A single request is always accepted: the overall budget has already admitted it.
    pub(crate) fn take(
        &self,
        principal: Option<&str>,
        bytes: usize,
        budget: &Budget,
    ) -> Result<Share<Principal>, SessionError> {
        let max = budget.limit() / DIVISOR;
        let has_room = |own: usize, _| own == 0 || bytes == 0 || own.saturating_add(bytes) <= max;
        let share = self.0.take(principal.map(Into::into), bytes, has_room);
        share.ok_or_else(|| budget.refuse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_cannot_use_the_whole_budget() {
        let budget = Budget::new(100);
        let limit = PrincipalLimit::default();
        let ann = limit.take(Some("ann"), 20, &budget).expect("room");
        assert!(limit.take(Some("ann"), 6, &budget).is_err());
        assert_eq!(budget.refused(), 1);
        let more = limit.take(Some("ann"), 5, &budget).expect("a quarter");
        let _bob = limit.take(Some("bob"), 25, &budget).expect("own share");
        drop((ann, more));
        assert!(limit.take(Some("ann"), 25, &budget).is_ok());
        assert_eq!(
            limit.0.lock().len(),
            1,
            "principals without a charge are removed"
        );
    }

    #[test]
    fn a_single_request_may_exceed_the_limit() {
        let budget = Budget::new(100);
        let limit = PrincipalLimit::default();
        let first = limit.take(None, 60, &budget).expect("alone");
        assert!(limit.take(None, 1, &budget).is_err());
        assert!(
            limit.take(None, 0, &budget).is_ok(),
            "a stream holds no memory"
        );
        drop(first);
        assert!(limit.take(None, 1, &budget).is_ok());
    }
}
