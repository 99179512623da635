//! Determines which clients may receive a notification of a shared process.
//!
//! Log messages do not name a request. A message goes to one client only if it cannot belong to a call of
//! another one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// A server may continue a cancelled call. It counts as active for at most this time.
const LEFT: Duration = Duration::from_hours(1);
/// Maximum number of cancelled calls. Beyond it, only the principal is stored.
const MOST_LEFT: usize = 1024;
/// Log messages after a response still belong to the call for this time.
const LINGERING: Duration = Duration::from_secs(2);

/// Owner of the token; `None` without tokens.
pub(crate) type Principal = Option<Arc<str>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// No call was made yet.
    #[default]
    All,
    /// The only principal with active calls, or the only one that ever made calls.
    Only(Principal),
    /// The message may belong to calls of several principals.
    None,
}

impl Audience {
    pub(crate) fn has(&self, principal: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only.as_deref() == principal,
            Self::None => false,
        }
    }

    fn with(self, principal: &Principal) -> Self {
        match self {
            Self::All => Self::Only(principal.clone()),
            Self::Only(only) if only == *principal => Self::Only(only),
            Self::Only(_) | Self::None => Self::None,
        }
    }
}

#[derive(Default)]
pub(crate) struct Callers {
    going: HashMap<u64, Principal>,
    /// Cancelled calls without a response, with their deadline.
    left: HashMap<u64, (Principal, Instant)>,
    /// Principals of finished calls, with the time until messages may belong to them.
    trailing: HashMap<Principal, Instant>,
    ever: Audience,
}

impl Callers {
    pub(crate) fn begin(&mut self, call: u64, principal: Principal) {
        self.ever = std::mem::take(&mut self.ever).with(&principal);
        self.going.insert(call, principal);
    }

    /// Also for cancelled calls.
    pub(crate) fn answered(&mut self, call: u64) {
        let left = self.left.remove(&call).map(|(principal, _)| principal);
        if let Some(principal) = self.going.remove(&call).or(left) {
            self.trail(principal, LINGERING);
        }
    }

    /// The call was cancelled, but the server may still process it.
    pub(crate) fn left(&mut self, call: u64) {
        let Some(principal) = self.going.remove(&call) else {
            return;
        };
        let now = Instant::now();
        if self.left.len() >= MOST_LEFT {
            self.left.retain(|_, (_, until)| now < *until);
        }
        if self.left.len() < MOST_LEFT {
            self.left.insert(call, (principal, now + LEFT));
        } else {
            self.trail(principal, LEFT);
        }
    }

    /// The request was never sent.
    pub(crate) fn unasked(&mut self, call: u64) {
        self.going.remove(&call);
    }

    fn trail(&mut self, principal: Principal, time: Duration) {
        let until = Instant::now() + time;
        let trailing = self.trailing.entry(principal).or_insert(until);
        *trailing = until.max(*trailing);
    }

    pub(crate) fn audience(&mut self) -> Audience {
        let now = Instant::now();
        self.trailing.retain(|_, until| now < *until);
        self.left.retain(|_, (_, until)| now < *until);
        let left = self.left.values().map(|(principal, _)| principal);
        let callers = self.going.values().chain(self.trailing.keys()).chain(left);
        match callers.fold(Audience::All, Audience::with) {
            Audience::All => self.ever.clone(),
            audience => audience,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "callers have no name without tokens"
    )]
    fn named(name: &str) -> Principal {
        Some(name.into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_for_the_only_principal_it_can_belong_to() {
        let mut callers = Callers::default();
        assert!(callers.audience().has(Some("ann")) && callers.audience().has(None));
        callers.begin(1, named("ann"));
        callers.begin(2, named("ann"));
        assert_eq!(callers.audience(), Audience::Only(named("ann")));
        callers.begin(3, named("bob"));
        assert_eq!(callers.audience(), Audience::None);
        callers.answered(1);
        callers.answered(2);
        assert_eq!(callers.audience(), Audience::None, "it may come late");
        tokio::time::advance(LINGERING).await;
        assert_eq!(callers.audience(), Audience::Only(named("bob")));
        callers.answered(3);
        tokio::time::advance(LINGERING).await;
        assert!(!callers.audience().has(Some("bob")), "ann has called too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_left_counts_until_it_is_answered() {
        let mut callers = Callers::default();
        callers.begin(1, named("ann"));
        callers.left(1);
        callers.begin(2, named("ann"));
        callers.answered(2);
        callers.begin(3, named("carl"));
        callers.unasked(3);
        tokio::time::advance(LINGERING).await;
        assert_eq!(callers.audience(), Audience::Only(named("ann")));
        callers.begin(4, named("bob"));
        tokio::time::advance(LEFT / 2).await;
        assert_eq!(callers.audience(), Audience::None, "it may go on");
        callers.answered(1);
        assert_eq!(callers.audience(), Audience::None, "it may come late");
        tokio::time::advance(LINGERING).await;
        assert_eq!(callers.audience(), Audience::Only(named("bob")));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_are_never_answered_count_for_a_while_however_many_they_are() {
        let mut callers = Callers::default();
        let most = u64::try_from(MOST_LEFT).expect("it fits");
        for call in 0..=most {
            let whose = if call == most { "ann" } else { "carl" };
            callers.begin(call, named(whose));
            callers.left(call);
        }
        assert_eq!(callers.left.len(), MOST_LEFT);
        (0..most).for_each(|call| callers.answered(call));
        callers.begin(most + 1, named("bob"));
        tokio::time::advance(LEFT.saturating_sub(LINGERING)).await;
        assert_eq!(callers.audience(), Audience::None, "ann's was one too many");
        tokio::time::advance(LINGERING).await;
        assert_eq!(callers.audience(), Audience::Only(named("bob")));
    }
}
