//! Stops the boxes that nobody uses where they stand, and wakes them for the next call.
//!
//! Comes in: time that passes, calls that need a box awake. Goes out: frozen boxes, and events that
//! say so. Never here: how a box is frozen, and which call is one. Whoever takes a lease wakes the
//! box before anything else.
//!
//! Nobody is ever left waiting for a box that stands still. Who comes counts himself first and then
//! looks whether the box may be frozen; who freezes says so first and then looks whether somebody has
//! come. One of the two always sees the other.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use boxwood_api::{EventKind, SessionId};
use boxwood_backend::Sandbox;
use tokio::time::{Instant, sleep_until};

use crate::SessionError;
use crate::events::Events;
use crate::registry::Registry;
use crate::session::{Lease, Session};

/// Between two looks, however short the wait before a freeze is.
const SHORTEST_NAP: Duration = Duration::from_millis(10);

/// Whether one session's box stands still.
pub(crate) struct Frost {
    session: SessionId,
    sandbox: Arc<dyn Sandbox>,
    events: Events,
    /// Set before the box is frozen, cleared after it was thawed.
    maybe: AtomicBool,
    /// For whoever only wants to know.
    shown: AtomicBool,
    /// The box said that it cannot be frozen; it is not asked again.
    refuses: AtomicBool,
    /// Since when it stands still. Held by the one who freezes or thaws.
    since: tokio::sync::Mutex<Option<Instant>>,
}

impl Frost {
    pub(crate) fn of(session: &SessionId, sandbox: &Arc<dyn Sandbox>, events: &Events) -> Self {
        Self {
            session: session.clone(),
            sandbox: Arc::clone(sandbox),
            events: events.clone(),
            maybe: AtomicBool::new(false),
            shown: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            since: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.shown.load(Ordering::Acquire)
    }

    /// Wakes the box. The caller has counted himself as a user before, and stays one for as long as
    /// the box must not be frozen. Costs nothing while it is awake.
    pub(crate) async fn thaw(&self) -> Result<(), SessionError> {
        fence(Ordering::SeqCst);
        if !self.maybe.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut since = self.since.lock().await;
        if !self.maybe.load(Ordering::SeqCst) {
            return Ok(());
        }
        let thawed = self.sandbox.thaw().await;
        thawed.map_err(|error| SessionError::control_of(&self.session, error))?;
        self.maybe.store(false, Ordering::SeqCst);
        self.shown.store(false, Ordering::Release);
        if let Some(since) = since.take() {
            let frozen_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.events
                .emit(&self.session, || EventKind::SessionThawed { frozen_ms });
        }
        Ok(())
    }

    /// Freezes the box if it is still unused once everybody who comes can know of it.
    async fn freeze(&self, is_unused: impl Fn() -> bool) {
        // Somebody is at it already.
        let Ok(mut since) = self.since.try_lock() else {
            return;
        };
        if since.is_some() || self.refuses.load(Ordering::Acquire) {
            return;
        }
        self.maybe.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !is_unused() {
            self.maybe.store(false, Ordering::SeqCst);
            return;
        }
        match self.sandbox.freeze().await {
            Ok(true) => {
                *since = Some(Instant::now());
                self.shown.store(true, Ordering::Release);
                tracing::debug!(session = %self.session, "an idle box is frozen");
                self.events.emit(&self.session, || EventKind::SessionFrozen);
            }
            Ok(false) => {
                self.maybe.store(false, Ordering::SeqCst);
                self.refuses.store(true, Ordering::Release);
                tracing::info!(session = %self.session, "this box cannot be frozen; it stays awake");
            }
            // Possibly half frozen: the next call thaws it, and the next look tries again.
            Err(error) => {
                tracing::warn!(session = %self.session, %error, "an idle box could not be frozen");
                if self.sandbox.thaw().await.is_ok() {
                    self.maybe.store(false, Ordering::SeqCst);
                }
            }
        }
    }
}

/// A box that stands still for a moment, whatever is asked of it meanwhile.
pub(crate) struct Held<'a> {
    frost: &'a Frost,
    /// It did not stand still in time.
    late: bool,
    released: bool,
    _alone: tokio::sync::MutexGuard<'a, Option<Instant>>,
}

impl Frost {
    /// `None` where that cannot be done, or where the box stands still already. One that takes longer
    /// than `wait` may do so later, or in part.
    pub(crate) async fn hold(&self, wait: Duration) -> Option<Held<'_>> {
        let alone = self.since.try_lock().ok()?;
        if alone.is_some() {
            return None;
        }
        let mut held = Held {
            frost: self,
            late: false,
            released: false,
            _alone: alone,
        };
        match tokio::time::timeout(wait, self.sandbox.hold()).await {
            Ok(Ok(false)) => {
                held.release().await;
                None
            }
            Ok(_) => Some(held),
            Err(_) => {
                held.late = true;
                Some(held)
            }
        }
    }
}

impl Held<'_> {
    pub(crate) fn session(&self) -> &SessionId {
        &self.frost.session
    }

    pub(crate) fn is_late(&self) -> bool {
        self.late
    }

    pub(crate) async fn release(mut self) {
        self.released = true;
        if let Err(error) = self.frost.sandbox.thaw().await {
            let session = &self.frost.session;
            tracing::error!(%session, %error, "a box that was held does not go on");
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        // Nobody waits; the next daemon lets every box go on that it takes over.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let sandbox = Arc::clone(&self.frost.sandbox);
            runtime.spawn(async move { sandbox.thaw().await });
        }
    }
}

impl Lease {
    /// The same lease, on a box that is awake, and stays so for as long as the lease lives.
    pub(crate) async fn awake(self) -> Result<Self, SessionError> {
        self.session.activity.frost.thaw().await?;
        Ok(self)
    }
}

/// Freezes what is idle until there is nothing left to look after.
pub(crate) async fn run(registry: Weak<Registry>) {
    while let Some(next_look) = look(&registry) {
        sleep_until(next_look).await;
    }
}

/// One round; `None` when no session is ever frozen, or all are gone for good.
fn look(registry: &Weak<Registry>) -> Option<Instant> {
    let registry = registry.upgrade()?;
    let shortest = registry.settings.shortest_freeze_after()?;
    let now = Instant::now();
    // A session that is made or used after this look cannot be due before that.
    let mut next_look = now.checked_add(shortest)?;
    for session in registry.ready() {
        match due_in(&registry, &session, now) {
            Some(Duration::ZERO) => {
                let registry = Arc::clone(&registry);
                // One that takes its time keeps nobody else from being frozen.
                tokio::spawn(async move {
                    let is_due = || {
                        due_in(&registry, &session, Instant::now()) == Some(Duration::ZERO)
                            && session.sandbox.is_alive()
                    };
                    session.activity.frost.freeze(is_due).await;
                });
            }
            Some(rest) => next_look = next_look.min(now + rest),
            None => {}
        }
    }
    Some(next_look.max(now + SHORTEST_NAP))
}

/// How long until a session is frozen; `None` while something keeps it awake, or nothing wakes it.
fn due_in(registry: &Registry, session: &Session, now: Instant) -> Option<Duration> {
    let after = registry.settings.freeze_after(session.spec.profile())?;
    let activity = &session.activity;
    if activity.is_running() || activity.is_attended() || activity.frost.is_frozen() {
        return None;
    }
    let idle = now.saturating_duration_since(activity.idle_since());
    Some(after.saturating_sub(idle))
}
