//! Removes sessions that nobody has used for a while.
//!
//! Comes in: time that passes, on the monotonic clock. Goes out: closes. Never polls: a session
//! that is used or made after a look cannot be due before a whole time to live has passed, so the
//! next look is known.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::registry::Registry;
use crate::session::{Ending, Session};

/// Between two looks, however short the time to live is.
const SHORTEST_NAP: Duration = Duration::from_millis(10);

pub(crate) async fn run(registry: Weak<Registry>, ttl: Duration) {
    if ttl.is_zero() {
        return;
    }
    loop {
        let Some(next_look) = look(&registry, ttl) else {
            return;
        };
        sleep_until(next_look).await;
    }
}

/// One round; `None` when there is nothing left to look after.
fn look(registry: &Weak<Registry>, ttl: Duration) -> Option<Instant> {
    let registry = registry.upgrade()?;
    let now = Instant::now();
    let mut next_look = now.checked_add(ttl).unwrap_or_else(far_away);
    for session in registry.ready() {
        match due_in(&session, now, ttl) {
            Some(Duration::ZERO) => {
                // Judged again under the registry's lock: an exec may have begun meanwhile.
                registry.close_if(&session, Ending::Asked, "idle for too long", |session| {
                    due_in(session, Instant::now(), ttl) == Some(Duration::ZERO)
                });
            }
            Some(rest) => next_look = next_look.min(now + rest),
            None => {}
        }
    }
    Some(next_look.max(now + SHORTEST_NAP))
}

/// How long until a session is due; `None` while something keeps it.
fn due_in(session: &Session, now: Instant, ttl: Duration) -> Option<Duration> {
    if session.spec.persistent() || !session.is_idle() {
        return None;
    }
    let idle = now.saturating_duration_since(session.activity.last_used());
    Some(ttl.saturating_sub(idle))
}

/// About thirty years: for a time to live that no clock can hold.
fn far_away() -> Instant {
    Instant::now() + Duration::from_hours(30 * 365 * 24)
}
