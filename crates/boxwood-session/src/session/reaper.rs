//! Removes idle sessions.
//!
//! Does not poll: a session that is used or created after a scan cannot be due before a whole time to
//! live has passed, so the time of the next scan is known.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::session::registry::Registry;
use crate::session::{Ending, Session};

/// Minimum interval of the scan.
pub(crate) const MIN_PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn run(registry: Weak<Registry>, ttl: Duration) {
    if ttl.is_zero() {
        return;
    }
    while let Some(pause) = scan(&registry, ttl) {
        sleep(pause.max(MIN_PAUSE)).await;
    }
}

/// Returns the time until the next scan, or `None` if the registry is gone.
fn scan(registry: &Weak<Registry>, ttl: Duration) -> Option<Duration> {
    let registry = registry.upgrade()?;
    let mut pause = ttl;
    for session in registry.ready() {
        match due_in(&session, ttl) {
            Some(Duration::ZERO) => {
                // Checked again under the lock, because an exec may have started.
                registry.close_if(
                    &session,
                    Ending::Requested,
                    "idle for too long",
                    |session| due_in(session, ttl) == Some(Duration::ZERO),
                );
            }
            Some(remaining) => pause = pause.min(remaining),
            None => {}
        }
    }
    Some(pause)
}

/// Time until a session is due; `None` if it is in use.
fn due_in(session: &Session, ttl: Duration) -> Option<Duration> {
    if session.spec.persistent() || !session.is_idle() {
        return None;
    }
    let idle = Instant::now().saturating_duration_since(session.activity.last_used());
    Some(ttl.saturating_sub(idle))
}
