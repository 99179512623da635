//! For whom it is what a server says unasked.
//!
//! Comes in: whose calls begin and end. Goes out: who may hear a line that came just now. A server does not
//! say for which request it logs, so a line is for one client only while it cannot be about another's call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// A server may go on with a call that nobody waits for any more, until it answers it. Some never do: no call
/// goes on for longer than this.
const LEFT: Duration = Duration::from_hours(1);
/// Calls that were left. Of further ones only is known whose they were.
const MOST_LEFT: usize = 1024;
/// What it logs after an answer is about that call.
const LINGERING: Duration = Duration::from_secs(2);

/// Whose token it was, where there are tokens.
pub(crate) type Principal = Option<Arc<str>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Nobody has called the server yet.
    #[default]
    Everybody,
    /// Whose calls go on; while none does, who made all of them so far.
    Only(Principal),
    /// It may be about calls of several.
    Nobody,
}

impl Audience {
    pub(crate) fn has(&self, principal: Option<&str>) -> bool {
        match self {
            Self::Everybody => true,
            Self::Only(only) => only.as_deref() == principal,
            Self::Nobody => false,
        }
    }

    fn with(self, principal: &Principal) -> Self {
        match self {
            Self::Everybody => Self::Only(principal.clone()),
            Self::Only(only) if only == *principal => Self::Only(only),
            Self::Only(_) | Self::Nobody => Self::Nobody,
        }
    }
}

#[derive(Default)]
pub(crate) struct Callers {
    going: HashMap<u64, Principal>,
    /// Calls that the server has not answered though nobody waits for them, and how long they count.
    left: HashMap<u64, (Principal, Instant)>,
    /// Whose calls are over, and how long lines may still be about them.
    trailing: HashMap<Principal, Instant>,
    ever: Audience,
}

impl Callers {
    pub(crate) fn begin(&mut self, call: u64, principal: Principal) {
        self.ever = std::mem::take(&mut self.ever).with(&principal);
        self.going.insert(call, principal);
    }

    /// Whether or not somebody waited for it.
    pub(crate) fn answered(&mut self, call: u64) {
        let left = self.left.remove(&call).map(|(principal, _)| principal);
        if let Some(principal) = self.going.remove(&call).or(left) {
            self.trail(principal, LINGERING);
        }
    }

    /// The server was asked, and may still be at it.
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

    /// The server never heard of it.
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
        match callers.fold(Audience::Everybody, Audience::with) {
            Audience::Everybody => self.ever.clone(),
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
    async fn a_line_is_for_whoever_it_can_be_about_alone() {
        let mut callers = Callers::default();
        assert!(callers.audience().has(Some("ann")) && callers.audience().has(None));
        callers.begin(1, named("ann"));
        callers.begin(2, named("ann"));
        assert_eq!(callers.audience(), Audience::Only(named("ann")));
        callers.begin(3, named("bob"));
        assert_eq!(callers.audience(), Audience::Nobody);
        callers.answered(1);
        callers.answered(2);
        assert_eq!(callers.audience(), Audience::Nobody, "it may come late");
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
        assert_eq!(callers.audience(), Audience::Nobody, "it may go on");
        callers.answered(1);
        assert_eq!(callers.audience(), Audience::Nobody, "it may come late");
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
        assert_eq!(
            callers.audience(),
            Audience::Nobody,
            "ann's was one too many"
        );
        tokio::time::advance(LINGERING).await;
        assert_eq!(callers.audience(), Audience::Only(named("bob")));
    }
}
