//! Freezes idle boxes, and thaws them for the next request.
//!
//! A request that takes a lease thaws the box first. To avoid a race, the user of a box counts itself
//! and then checks whether the box is frozen, while the freezer marks the box as frozen and then checks
//! whether it is used. One of them always sees the other.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use boxwood_api::{EventKind, SessionId, with_causes};
use boxwood_backend::Sandbox;
use tokio::time::{Instant, sleep};

use crate::events::Events;
use crate::session::reaper::MIN_PAUSE;
use crate::session::registry::Registry;
use crate::session::{Lease, Session};
use crate::{Result, SessionError};

/// Whether the box of one session is frozen.
pub(crate) struct FreezeState {
    session: SessionId,
    sandbox: Arc<dyn Sandbox>,
    events: Events,
    /// Set before the box is frozen, cleared after it is thawed.
    maybe_frozen: AtomicBool,
    /// For display.
    frozen: AtomicBool,
    /// The backend reported that the box cannot be frozen. It is not tried again.
    unsupported: AtomicBool,
    /// Since when the box is frozen. Locked while freezing or thawing.
    frozen_since: tokio::sync::Mutex<Option<Instant>>,
}

impl FreezeState {
    pub(crate) fn of(session: &SessionId, sandbox: &Arc<dyn Sandbox>, events: &Events) -> Self {
        Self {
            session: session.clone(),
            sandbox: Arc::clone(sandbox),
            events: events.clone(),
            maybe_frozen: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            unsupported: AtomicBool::new(false),
            frozen_since: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    /// Thaws the box. The caller has counted itself as a user and stays one while the box must not be
    /// frozen. Costs nothing if the box is not frozen.
    pub(crate) async fn thaw(&self) -> Result<()> {
        fence(Ordering::SeqCst);
        if !self.maybe_frozen.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut frozen_since = self.frozen_since.lock().await;
        if !self.maybe_frozen.load(Ordering::SeqCst) {
            return Ok(());
        }
        let outcome = self.sandbox.thaw().await;
        outcome.map_err(|error| SessionError::control_of(&self.session, error))?;
        self.maybe_frozen.store(false, Ordering::SeqCst);
        self.frozen.store(false, Ordering::Release);
        if let Some(frozen_since) = frozen_since.take() {
            let frozen_ms = u64::try_from(frozen_since.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.events
                .emit(&self.session, || EventKind::SessionThawed { frozen_ms });
        }
        Ok(())
    }

    /// Freezes the box if it is still idle after it has been marked.
    async fn freeze(&self, is_unused: impl Fn() -> bool) {
        // It is being frozen or thawed.
        let Ok(mut frozen_since) = self.frozen_since.try_lock() else {
            return;
        };
        if frozen_since.is_some() || self.unsupported.load(Ordering::Acquire) {
            return;
        }
        self.maybe_frozen.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !is_unused() {
            self.maybe_frozen.store(false, Ordering::SeqCst);
            return;
        }
        match self.sandbox.freeze().await {
            Ok(true) => {
                *frozen_since = Some(Instant::now());
                self.frozen.store(true, Ordering::Release);
                tracing::debug!(session = %self.session, "froze an idle box");
                self.events.emit(&self.session, || EventKind::SessionFrozen);
            }
            Ok(false) => {
                self.maybe_frozen.store(false, Ordering::SeqCst);
                self.unsupported.store(true, Ordering::Release);
                tracing::info!(session = %self.session, "the backend cannot freeze this box; it stays running");
            }
            // It may be partly frozen: the next request thaws it, and the next scan tries again.
            Err(error) => {
                tracing::warn!(session = %self.session, error = %with_causes(&error), "failed to freeze an idle box");
                if self.sandbox.thaw().await.is_ok() {
                    self.maybe_frozen.store(false, Ordering::SeqCst);
                }
            }
        }
    }
}

impl Lease {
    /// Thaws the box and keeps it running while the lease exists.
    pub(crate) async fn thawed(self) -> Result<Self> {
        self.session.activity.freeze_state.thaw().await?;
        Ok(self)
    }
}

/// Freezes idle boxes until the registry is dropped.
pub(crate) async fn run(registry: Weak<Registry>) {
    while let Some(pause) = scan(&registry) {
        sleep(pause.max(MIN_PAUSE)).await;
    }
}

/// Returns the time until the next scan, or `None` if no session can ever be frozen.
fn scan(registry: &Weak<Registry>) -> Option<Duration> {
    let registry = registry.upgrade()?;
    // A session that is created or used after this scan cannot be due before that.
    let mut pause = registry.settings.shortest_freeze_after()?;
    for session in registry.ready() {
        match due_in(&registry, &session) {
            Some(Duration::ZERO) => {
                let registry = Arc::clone(&registry);
                // In a task, so that a slow box does not delay the others.
                tokio::spawn(async move {
                    let is_due = || {
                        due_in(&registry, &session) == Some(Duration::ZERO)
                            && session.sandbox.is_alive()
                    };
                    session.activity.freeze_state.freeze(is_due).await;
                });
            }
            Some(remaining) => pause = pause.min(remaining),
            None => {}
        }
    }
    Some(pause)
}

/// Time until a session is frozen; `None` if it is in use, already frozen, or never frozen.
fn due_in(registry: &Registry, session: &Session) -> Option<Duration> {
    let after = registry.settings.freeze_after(session.spec.profile())?;
    let activity = &session.activity;
    if activity.is_running() || activity.is_attended() || activity.freeze_state.is_frozen() {
        return None;
    }
    let idle = Instant::now().saturating_duration_since(activity.idle_since());
    Some(after.saturating_sub(idle))
}
