//! The one place that knows which sessions exist.
//!
//! Comes in: admitted specs, and whoever asks for a session. Goes out: leases on living sessions.
//! Never here: a lock held while a backend works. Creations and removals run in tasks of their own
//! (`starting`, `closing`), so a caller that vanishes leaves neither half a box nor half a removal.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_api::SessionId;
use boxwood_ledger::Ledger;
use boxwood_policy::AdmittedSpec;
use tokio::sync::watch;

use crate::activity::lock;
use crate::admission::Gate;
use crate::backends::Backends;
use crate::compat::first_difference;
use crate::events::Events;
use crate::exec::Room;
use crate::execs;
use crate::mounts::Brought;
use crate::quota::Quotas;
use crate::reach::Reach;
use crate::session::{Handle, Lease, Session};
use crate::slot::{Settled, Slot, settled};
use crate::warm::Warm;
use crate::{SessionError, Settings};

pub(crate) struct Registry {
    pub(crate) backends: Backends,
    pub(crate) settings: Settings,
    pub(crate) events: Events,
    pub(crate) gate: Gate,
    pub(crate) quotas: Quotas,
    pub(crate) exec_ids: AtomicU64,
    /// Boxes that wait for a session.
    pub(crate) warm: Warm,
    /// What the next daemon finds, and where incarnations come from.
    pub(crate) ledger: Ledger,
    pub(crate) slots: Mutex<HashMap<SessionId, Slot<Arc<Session>>>>,
    pub(crate) shutting_down: AtomicBool,
}

/// What looking up an id came to.
pub(crate) enum Found {
    /// Of a session that fits; mounts that the request brings along may still have to join.
    Lease(Lease),
    /// The session goes, and is made again like this when that is settled.
    Remake(Settled, Arc<AdmittedSpec>),
    /// Worth another look when this is settled; its error is the caller's too.
    Share(Settled),
    /// Worth another look when this is settled, however it ends.
    Wait(Settled),
}

impl Registry {
    pub(crate) fn new(backends: Backends, settings: Settings, ledger: Ledger) -> Self {
        Self {
            backends,
            gate: Gate::new(&settings.load, settings.max_processes),
            quotas: Quotas::new(settings.load.min_free_bytes),
            settings,
            events: Events::new(),
            exec_ids: AtomicU64::new(execs::first_id()),
            warm: Warm::default(),
            ledger,
            slots: Mutex::default(),
            shutting_down: AtomicBool::new(false),
        }
    }

    /// For one captured command.
    pub(crate) fn room(&self) -> Room {
        Room {
            capture_bytes: self.settings.capture_bytes,
            budget: self.gate.budget.clone(),
        }
    }

    /// The session of that name, made when it is missing and no certain one is meant. Callers that
    /// come while it is being made share that creation and its error.
    pub(crate) async fn get_or_create(
        self: &Arc<Self>,
        spec: &Arc<AdmittedSpec>,
        incarnation: Option<u64>,
        reach: Reach,
    ) -> Result<Lease, SessionError> {
        self.backends.check(spec.backend().unwrap_or_default())?;
        let handle = Handle {
            id: spec.session(),
            incarnation,
            reach,
        };
        let brought = Arc::new(Brought::by(spec));
        let mut start_as = Arc::clone(spec);
        let mut retried = false;
        loop {
            match self.look_up_or_start(spec, handle, &brought, &start_as)? {
                Found::Lease(lease) => {
                    let session = Arc::clone(&lease.session);
                    let joined = match lease.awake().await {
                        Ok(lease) => self.join_mounts(lease, spec, &brought).await,
                        Err(error) => Err(error),
                    };
                    match joined {
                        Err(SessionError::Gone { .. }) if !retried => {
                            retried = true;
                            // Its errors belong to the session that was.
                            let _ = settled(self.close_dead(&session)).await;
                        }
                        outcome => return outcome,
                    }
                }
                Found::Remake(closed, spec) => {
                    start_as = spec;
                    // A box that was not removed cleanly was logged as such, and its name is free.
                    let _ = settled(closed).await;
                }
                Found::Share(step) => match settled(step).await {
                    // Its box died before it was one: nothing was done in it.
                    Err(SessionError::Gone { .. }) if !retried => retried = true,
                    outcome => outcome?,
                },
                Found::Wait(step) => {
                    // Its errors belong to others.
                    let _ = settled(step).await;
                }
            }
        }
    }

    /// A missing session is started as `start_as`, which is `spec` unless it had to go for mounts
    /// that `spec` brought.
    fn look_up_or_start(
        self: &Arc<Self>,
        spec: &Arc<AdmittedSpec>,
        handle: Handle<'_>,
        brought: &Brought,
        start_as: &Arc<AdmittedSpec>,
    ) -> Result<Found, SessionError> {
        let Handle {
            id,
            incarnation,
            reach,
        } = handle;
        let mut slots = lock(&self.slots);
        if self.shutting_down.load(Ordering::Acquire) {
            return Err(SessionError::ShuttingDown);
        }
        if let Some(is_hosted) = slots.get(id).and_then(is_hosted) {
            reach.check(id, is_hosted)?;
        }
        match slots.get(id) {
            Some(Slot::Ready { session }) if !handle.means(session) => Err(self.missing(handle)),
            Some(Slot::Ready { session }) if !session.sandbox.is_alive() => {
                let dead = Arc::clone(session);
                drop(slots);
                Ok(Found::Wait(self.close_dead(&dead)))
            }
            Some(Slot::Ready { session }) => match first_difference(&session.spec, spec) {
                None => match outdated(session, spec, brought) {
                    None => Ok(Found::Lease(Lease::new(session))),
                    // Whoever means this very one does not want another in its place.
                    Some(why) if session.is_idle() && incarnation.is_none() => {
                        let session = Arc::clone(session);
                        drop(slots);
                        Ok(self.remake(&session, spec, brought, &why))
                    }
                    Some(why) => {
                        tracing::info!(session = %id, why, "a running box stays as it is");
                        Ok(Found::Lease(Lease::new(session)))
                    }
                },
                Some(difference) => Err(SessionError::Conflict {
                    session: id.clone(),
                    field: difference.field,
                    value: difference.value,
                }),
            },
            Some(Slot::Starting { .. } | Slot::Closing { .. }) | None if incarnation.is_some() => {
                Err(self.missing(handle))
            }
            // A request that the new session would not fit waits to be told so by a session that
            // really exists; one that comes after a delete waits for that to be over.
            Some(Slot::Starting {
                spec: starting,
                started,
                close_after,
            }) => {
                let step = started.clone();
                if close_after.is_none() && first_difference(starting, spec).is_none() {
                    Ok(Found::Share(step))
                } else {
                    Ok(Found::Wait(step))
                }
            }
            Some(Slot::Closing { closed }) => Ok(Found::Wait(closed.clone())),
            None if slots.len() >= self.settings.max_sessions => {
                Err(SessionError::TooManySessions {
                    limit: self.settings.max_sessions,
                })
            }
            None => {
                let (settle, started) = watch::channel(None);
                slots.insert(
                    id.clone(),
                    Slot::Starting {
                        spec: Arc::clone(start_as),
                        started: started.clone(),
                        close_after: None,
                    },
                );
                drop(slots);
                let registry = Arc::clone(self);
                tokio::spawn(registry.start(Arc::clone(start_as), settle));
                Ok(Found::Share(started))
            }
        }
    }

    /// A living session, waited for while it starts, never created.
    pub(crate) async fn existing<'a>(
        &self,
        handle: impl Into<Handle<'a>>,
    ) -> Result<Lease, SessionError> {
        let handle = handle.into();
        loop {
            match self.look_up(handle)? {
                Ok(lease) => return lease.awake().await,
                Err(starting) => settled(starting).await?,
            }
        }
    }

    /// The living session, or what settles when it is started.
    fn look_up(&self, handle: Handle<'_>) -> Result<Result<Lease, Settled>, SessionError> {
        let slots = lock(&self.slots);
        let slot = slots.get(handle.id);
        if let Some(error) = self.barred(handle, slot) {
            return Err(error);
        }
        match slot {
            Some(Slot::Ready { session }) if !handle.means(session) => Err(self.missing(handle)),
            Some(Slot::Ready { session }) if session.is_let_go() => Err(SessionError::ShuttingDown),
            Some(Slot::Ready { session }) if session.sandbox.is_alive() => {
                Ok(Ok(Lease::new(session)))
            }
            Some(Slot::Ready { session }) => Err(session.gone()),
            // Nobody was told its number yet.
            Some(Slot::Starting { started, .. }) if handle.incarnation.is_none() => {
                Ok(Err(started.clone()))
            }
            Some(Slot::Starting { .. } | Slot::Closing { .. }) | None => Err(self.missing(handle)),
        }
    }

    /// A living session, without waiting and without counting as use.
    pub(crate) fn peek<'a>(
        &self,
        handle: impl Into<Handle<'a>>,
    ) -> Result<Arc<Session>, SessionError> {
        let handle = handle.into();
        let slots = lock(&self.slots);
        if let Some(error) = self.barred(handle, slots.get(handle.id)) {
            return Err(error);
        }
        match slots.get(handle.id) {
            Some(Slot::Ready { session }) if handle.means(session) => Ok(Arc::clone(session)),
            Some(_) | None => Err(self.missing(handle)),
        }
    }

    /// What to say to whoever may not have to do with the session that is there.
    pub(crate) fn barred(
        &self,
        handle: Handle<'_>,
        slot: Option<&Slot<Arc<Session>>>,
    ) -> Option<SessionError> {
        let is_hosted = slot.and_then(is_hosted)?;
        match handle.reach.check(handle.id, is_hosted) {
            Ok(()) => None,
            // Hosting made none of that name.
            Err(SessionError::NotHosted { .. }) => Some(self.missing(handle)),
            Err(error) => Some(error),
        }
    }

    /// What to say to whoever means a session that is not there: how it ended, where a certain one
    /// is meant.
    pub(crate) fn missing(&self, handle: Handle<'_>) -> SessionError {
        let session = handle.id.clone();
        let Some(incarnation) = handle.incarnation else {
            return SessionError::NotFound { session };
        };
        let why = match self.ledger.end_of(&session, incarnation) {
            Some(end) => end.why,
            None if self.ledger.has_given_out(incarnation) => {
                format!("incarnation {incarnation} of it is no longer there")
            }
            None => format!("there never was an incarnation {incarnation} of it"),
        };
        SessionError::Gone { session, why }
    }

    pub(crate) fn ready(&self) -> Vec<Arc<Session>> {
        lock(&self.slots)
            .values()
            .filter_map(|slot| match slot {
                Slot::Ready { session } => Some(Arc::clone(session)),
                Slot::Starting { .. } | Slot::Closing { .. } => None,
            })
            .collect()
    }

    pub(crate) fn ids(&self, reach: Reach) -> Vec<SessionId> {
        lock(&self.slots)
            .iter()
            .filter(|(_, slot)| is_hosted(slot).is_some_and(|it| reach.includes(it)))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Names that are taken, whatever state their sessions are in.
    pub(crate) fn occupied(&self) -> usize {
        lock(&self.slots).len()
    }

    /// How many sessions are being started, and how many are going.
    pub(crate) fn in_motion(&self) -> (usize, usize) {
        lock(&self.slots)
            .values()
            .fold((0, 0), |(starting, closing), slot| match slot {
                Slot::Starting { .. } => (starting + 1, closing),
                Slot::Closing { .. } => (starting, closing + 1),
                Slot::Ready { .. } => (starting, closing),
            })
    }
}

/// `None` of one that is going: what comes after it is another.
fn is_hosted(slot: &Slot<Arc<Session>>) -> Option<bool> {
    match slot {
        Slot::Ready { session } => Some(session.spec.is_hosted()),
        Slot::Starting { spec, .. } => Some(spec.is_hosted()),
        Slot::Closing { .. } => None,
    }
}

/// Why a session that fits a request is not what it would be if it were made now: mounts that its
/// box cannot take, or a configuration that has moved on.
fn outdated(session: &Session, spec: &AdmittedSpec, brought: &Brought) -> Option<String> {
    if let Some(field) = session.spec.drifted_from(spec) {
        return Some(format!("the configuration of its {field} has changed"));
    }
    let fits = Registry::has_or_takes(session, spec, brought);
    (!fits).then(|| "made anew with more mounts".to_owned())
}
