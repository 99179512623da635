//! Removes idle sessions.
//!
//! Does not poll: a session that is used or created after a scan cannot be due before a whole time to
//! live has passed, so the time of the next scan is known.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::session::registry::Registry;
use crate::session::{Ending, Session};

/// Minimum interval of the scan.
const SHORTEST_NAP: Duration = Duration::from_millis(10);

pub(crate) async fn run(registry: Weak<Registry>, ttl: Duration) {
    if ttl.is_zero() {
        return;
    }
    loop {
        let Some(next_scan) = scan(&registry, ttl) else {
            return;
        };
        sleep_until(next_scan).await;
    }
}

/// Returns the time until the next scan, or `None` if the registry is gone.
fn scan(registry: &Weak<Registry>, ttl: Duration) -> Option<Instant> {
    let registry = registry.upgrade()?;
    let now = Instant::now();
    let mut next_scan = now.checked_add(ttl).unwrap_or_else(far_away);
    for session in registry.ready() {
        match due_in(&session, now, ttl) {
            Some(Duration::ZERO) => {
                // Checked again under the lock, because an exec may have started.
                registry.close_if(&session, Ending::Asked, "idle for too long", |session| {
                    due_in(session, Instant::now(), ttl) == Some(Duration::ZERO)
                });
            }
            Some(rest) => next_scan = next_scan.min(now + rest),
            None => {}
        }
    }
    Some(next_scan.max(now + SHORTEST_NAP))
}

/// Time until a session is due; `None` if it is in use.
fn due_in(session: &Session, now: Instant, ttl: Duration) -> Option<Duration> {
    if session.spec.persistent() || !session.is_idle() {
        return None;
    }
    let idle = now.saturating_duration_since(session.activity.last_used());
    Some(ttl.saturating_sub(idle))
}

/// About thirty years, for a time to live that no clock can represent.
fn far_away() -> Instant {
    Instant::now() + Duration::from_hours(30 * 365 * 24)
}
