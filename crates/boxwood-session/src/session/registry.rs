//! All sessions of the daemon.
//!
//! No lock is held while a backend works. Creations and removals run in tasks (`starting`, `closing`),
//! so that they are completed even if the caller disconnects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_api::SessionId;
use boxwood_ledger::Ledger;
use boxwood_policy::AdmittedSpec;
use tokio::sync::watch;

use crate::admission::Gate;
use crate::backends::Backends;
use crate::events::Events;
use crate::exec::table;
use crate::session::access::Access;
use crate::session::activity::lock;
use crate::session::compatibility::first_difference;
use crate::session::mounts::SessionRequest;
use crate::session::state::{SessionState, Settled, settled};
use crate::session::{Handle, Lease, Session};
use crate::warm_pool::Warm;
use crate::{Result, SessionError, Settings};

pub(crate) struct Registry {
    pub(crate) backends: Backends,
    pub(crate) settings: Settings,
    pub(crate) events: Events,
    pub(crate) gate: Gate,
    pub(crate) exec_ids: AtomicU64,
    /// Prewarmed boxes.
    pub(crate) warm: Warm,
    /// Sessions recorded for the next daemon, and the source of incarnations.
    pub(crate) ledger: Ledger,
    pub(crate) slots: Mutex<HashMap<SessionId, SessionState<Arc<Session>>>>,
    pub(crate) shutting_down: AtomicBool,
}

/// The result of looking up an id.
pub(crate) enum Found {
    /// The session fits. Mounts of the request may have to be added.
    Lease(Lease),
    /// The session is being closed and has to be recreated with this spec.
    Recreate(Settled, Arc<AdmittedSpec>),
    /// Try again when this has settled. Its error is the caller's too.
    Share(Settled),
    /// Try again when this has settled, even with an error.
    Wait(Settled),
}

impl Registry {
    pub(crate) fn new(backends: Backends, settings: Settings, ledger: Ledger) -> Self {
        Self {
            backends,
            gate: Gate::new(&settings.load, settings.max_processes),
            settings,
            events: Events::new(),
            exec_ids: AtomicU64::new(table::first_id()),
            warm: Warm::default(),
            ledger,
            slots: Mutex::default(),
            shutting_down: AtomicBool::new(false),
        }
    }

    /// Returns the session with that name, and creates it if it is missing and no certain incarnation
    /// is requested. Callers that arrive while it is being created share the creation and its error.
    pub(crate) async fn get_or_create(
        self: &Arc<Self>,
        spec: &Arc<AdmittedSpec>,
        handle: Handle<'_>,
    ) -> Result<Lease> {
        self.backends.check(spec.backend().unwrap_or_default())?;
        let request = Arc::new(SessionRequest::new(spec));
        let mut new_spec = Arc::clone(spec);
        let mut retried = false;
        loop {
            match self.look_up_or_start(&request, handle, &new_spec)? {
                Found::Lease(lease) => {
                    let session = Arc::clone(&lease.session);
                    let joined = match lease.thawed().await {
                        Ok(lease) => lease.with_mounts(&request).await,
                        Err(error) => Err(error),
                    };
                    match joined {
                        Err(SessionError::Gone { .. }) if !retried => {
                            retried = true;
                            // Its errors belong to the previous session.
                            let _ = settled(self.close_dead(&session)).await;
                        }
                        outcome => return outcome,
                    }
                }
                Found::Recreate(closed, spec) => {
                    new_spec = spec;
                    // The failed removal has been logged, and the name is free.
                    let _ = settled(closed).await;
                }
                Found::Share(step) => match settled(step).await {
                    // The box died before anything ran in it.
                    Err(SessionError::Gone { .. }) if !retried => retried = true,
                    outcome => outcome?,
                },
                Found::Wait(step) => {
                    // Its errors belong to other callers.
                    let _ = settled(step).await;
                }
            }
        }
    }

    /// A missing session is started with `new_spec`, which differs from the requested spec if the session was
    /// closed to add mounts.
    fn look_up_or_start(
        self: &Arc<Self>,
        request: &SessionRequest,
        handle: Handle<'_>,
        new_spec: &Arc<AdmittedSpec>,
    ) -> Result<Found> {
        let (id, incarnation) = (handle.id, handle.incarnation);
        let mut slots = lock(&self.slots);
        if self.shutting_down.load(Ordering::Acquire) {
            return Err(SessionError::ShuttingDown);
        }
        if let Some(is_hosted) = slots.get(id).and_then(is_hosted) {
            handle.access.check(id, is_hosted)?;
        }
        match slots.get(id) {
            Some(SessionState::Ready { session }) if !handle.matches(session) => {
                Err(self.missing(handle))
            }
            Some(SessionState::Ready { session }) if !session.sandbox.is_alive() => {
                let dead = Arc::clone(session);
                drop(slots);
                Ok(Found::Wait(self.close_dead(&dead)))
            }
            Some(SessionState::Ready { session }) => {
                match first_difference(&session.spec, &request.spec) {
                    None => match outdated(session, request) {
                        None => Ok(Found::Lease(Lease::new(session))),
                        // The caller requested this incarnation, not a new one.
                        Some(why) if session.is_idle() && incarnation.is_none() => {
                            let session = Arc::clone(session);
                            drop(slots);
                            Ok(self.recreate(&session, request, &why))
                        }
                        Some(why) => {
                            tracing::info!(session = %id, why, "a running box differs from the request and is kept");
                            Ok(Found::Lease(Lease::new(session)))
                        }
                    },
                    Some(difference) => Err(SessionError::Conflict {
                        session: id.clone(),
                        field: difference.field,
                        value: difference.value,
                    }),
                }
            }
            Some(SessionState::Starting { .. } | SessionState::Closing { .. }) | None
                if incarnation.is_some() =>
            {
                Err(self.missing(handle))
            }
            // A request that does not fit the new session waits until that session exists. One that
            // arrives after a delete waits until the removal is over.
            Some(SessionState::Starting {
                spec: starting,
                started,
                close_after,
            }) => {
                let step = started.clone();
                if close_after.is_none() && first_difference(starting, &request.spec).is_none() {
                    Ok(Found::Share(step))
                } else {
                    Ok(Found::Wait(step))
                }
            }
            Some(SessionState::Closing { closed }) => Ok(Found::Wait(closed.clone())),
            None if slots.len() >= self.settings.max_sessions => {
                Err(SessionError::TooManySessions {
                    limit: self.settings.max_sessions,
                })
            }
            None => {
                let (settle, started) = watch::channel(None);
                slots.insert(
                    id.clone(),
                    SessionState::Starting {
                        spec: Arc::clone(new_spec),
                        started: started.clone(),
                        close_after: None,
                    },
                );
                drop(slots);
                let registry = Arc::clone(self);
                tokio::spawn(registry.start(Arc::clone(new_spec), settle));
                Ok(Found::Share(started))
            }
        }
    }

    /// Returns an existing session and waits while it is being started. Never creates one.
    pub(crate) async fn existing(&self, handle: Handle<'_>) -> Result<Lease> {
        loop {
            match self.look_up(handle)? {
                Ok(lease) => return lease.thawed().await,
                Err(starting) => settled(starting).await?,
            }
        }
    }

    /// Returns the session, or what settles when it is started.
    fn look_up(&self, handle: Handle<'_>) -> Result<Result<Lease, Settled>> {
        let slots = lock(&self.slots);
        let slot = slots.get(handle.id);
        self.check_access(handle, slot)?;
        match slot {
            Some(SessionState::Ready { session }) if !handle.matches(session) => {
                Err(self.missing(handle))
            }
            Some(SessionState::Ready { session })
                if session.sandbox.is_alive() && !session.is_detached() =>
            {
                Ok(Ok(Lease::new(session)))
            }
            Some(SessionState::Ready { session }) => Err(session.gone()),
            // Its incarnation is not known to callers yet.
            Some(SessionState::Starting { started, .. }) if handle.incarnation.is_none() => {
                Ok(Err(started.clone()))
            }
            Some(SessionState::Starting { .. } | SessionState::Closing { .. }) | None => {
                Err(self.missing(handle))
            }
        }
    }

    /// Returns an existing session, without waiting and without counting as a use.
    pub(crate) fn peek(&self, handle: Handle<'_>) -> Result<Arc<Session>> {
        let slots = lock(&self.slots);
        self.check_access(handle, slots.get(handle.id))?;
        match slots.get(handle.id) {
            Some(SessionState::Ready { session }) if handle.matches(session) => {
                Ok(Arc::clone(session))
            }
            Some(_) | None => Err(self.missing(handle)),
        }
    }

    /// Fails for a caller without access to the session.
    pub(crate) fn check_access(
        &self,
        handle: Handle<'_>,
        slot: Option<&SessionState<Arc<Session>>>,
    ) -> Result<()> {
        let Some(is_hosted) = slot.and_then(is_hosted) else {
            return Ok(());
        };
        match handle.access.check(handle.id, is_hosted) {
            // Hosting has created no session with that name.
            Err(SessionError::NotHosted { .. }) => Err(self.missing(handle)),
            outcome => outcome,
        }
    }

    /// Error for a missing session. If an incarnation was requested, it contains how that one ended.
    pub(crate) fn missing(&self, handle: Handle<'_>) -> SessionError {
        let session = handle.id.clone();
        let Some(incarnation) = handle.incarnation else {
            return SessionError::NotFound { session };
        };
        let why = match self.ledger.end_of(&session, incarnation) {
            Some(end) => end.why,
            None if self.ledger.has_assigned(incarnation) => {
                format!("incarnation {incarnation} no longer exists")
            }
            None => format!("incarnation {incarnation} never existed"),
        };
        SessionError::Gone { session, why }
    }

    pub(crate) fn ready(&self) -> Vec<Arc<Session>> {
        lock(&self.slots)
            .values()
            .filter_map(|slot| match slot {
                SessionState::Ready { session } => Some(Arc::clone(session)),
                SessionState::Starting { .. } | SessionState::Closing { .. } => None,
            })
            .collect()
    }

    pub(crate) fn ids(&self, access: Access) -> Vec<SessionId> {
        lock(&self.slots)
            .iter()
            .filter(|(_, slot)| is_hosted(slot).is_some_and(|hosted| access.includes(hosted)))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Names in use, in any state.
    pub(crate) fn occupied(&self) -> usize {
        lock(&self.slots).len()
    }

    /// Numbers of sessions that are being started and closed.
    pub(crate) fn starting_and_closing(&self) -> (usize, usize) {
        lock(&self.slots)
            .values()
            .fold((0, 0), |(starting, closing), slot| match slot {
                SessionState::Starting { .. } => (starting + 1, closing),
                SessionState::Closing { .. } => (starting, closing + 1),
                SessionState::Ready { .. } => (starting, closing),
            })
    }
}

/// `None` for a session that is being closed.
fn is_hosted(slot: &SessionState<Arc<Session>>) -> Option<bool> {
    match slot {
        SessionState::Ready { session } => Some(session.spec.is_hosted()),
        SessionState::Starting { spec, .. } => Some(spec.is_hosted()),
        SessionState::Closing { .. } => None,
    }
}

/// Why a session that fits a request differs from a new one: mounts that its box cannot add, or a
/// changed configuration.
fn outdated(session: &Session, request: &SessionRequest) -> Option<String> {
    if let Some(field) = session.spec.drifted_from(&request.spec) {
        return Some(format!("the configuration of its {field} has changed"));
    }
    let fits = session.has_all_mounts(request) || session.can_add_mounts();
    (!fits).then(|| "a request has mounts that its box cannot add".to_owned())
}
