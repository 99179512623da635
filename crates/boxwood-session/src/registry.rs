//! The one place that knows which sessions exist.
//!
//! Comes in: admitted specs, deletes, the news that a box died. Goes out: leases on living
//! sessions. Never here: a lock held while a backend works. Creations and removals run in tasks of
//! their own, so a caller that vanishes leaves neither half a box nor half a removal.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_api::{EventKind, SessionId};
use boxwood_backend::Witness;
use boxwood_policy::AdmittedSpec;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::activity::{Attended, lock};
use crate::admission::Gate;
use crate::backends::{Backends, Begun};
use crate::compat::first_difference;
use crate::events::Events;
use crate::mounts::Brought;
use crate::session::{Ending, Lease, Session};
use crate::slot::{Close, Settle, Settled, Slot, Started, settled};
use crate::warm::Warm;
use crate::{SessionError, Settings};

/// For managed processes whose whole session goes: shorter than a stop of their own, because
/// somebody waits for the session to be gone.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

pub(crate) struct Registry {
    pub(crate) backends: Backends,
    pub(crate) settings: Settings,
    pub(crate) events: Events,
    pub(crate) gate: Gate,
    pub(crate) exec_ids: AtomicU64,
    /// Boxes that wait for a session.
    pub(crate) warm: Warm,
    slots: Mutex<HashMap<SessionId, Slot<Arc<Session>>>>,
    /// One counter for all ids: it never goes back, and no memory of old ids is needed.
    incarnations: AtomicU64,
    shutting_down: AtomicBool,
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
    pub(crate) fn new(backends: Backends, settings: Settings) -> Self {
        Self {
            backends,
            gate: Gate::new(&settings.load, settings.max_processes),
            settings,
            events: Events::new(),
            exec_ids: AtomicU64::new(1),
            warm: Warm::default(),
            slots: Mutex::default(),
            incarnations: AtomicU64::new(1),
            shutting_down: AtomicBool::new(false),
        }
    }

    /// The session of that name, made when it is missing. Callers that come while it is being made
    /// share that creation and its error.
    pub(crate) async fn get_or_create(
        self: &Arc<Self>,
        spec: &Arc<AdmittedSpec>,
    ) -> Result<Lease, SessionError> {
        self.backends.check(spec.backend().unwrap_or_default())?;
        let brought = Arc::new(Brought::by(spec));
        let mut start_as = Arc::clone(spec);
        let mut retried = false;
        loop {
            match self.look_up_or_start(spec, &brought, &start_as)? {
                Found::Lease(lease) => {
                    let session = Arc::clone(&lease.session);
                    let lease = lease.awake().await?;
                    match self.join_mounts(lease, spec, &brought).await {
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
                Found::Share(step) => settled(step).await?,
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
        brought: &Brought,
        start_as: &Arc<AdmittedSpec>,
    ) -> Result<Found, SessionError> {
        let id = spec.session();
        let mut slots = lock(&self.slots);
        if self.shutting_down.load(Ordering::Acquire) {
            return Err(SessionError::ShuttingDown);
        }
        match slots.get(id) {
            Some(Slot::Ready { session }) if !session.sandbox.is_alive() => {
                let dead = Arc::clone(session);
                drop(slots);
                Ok(Found::Wait(self.close_dead(&dead)))
            }
            Some(Slot::Ready { session }) => match first_difference(&session.spec, spec) {
                None => match outdated(session, spec, brought) {
                    None => Ok(Found::Lease(Lease::new(session))),
                    Some(why) if session.is_idle() => {
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

    /// Makes the box and settles the slot, whichever way it goes.
    async fn start(self: Arc<Self>, spec: Arc<AdmittedSpec>, settle: Settle) {
        let progress = self.events.progress_of(spec.session());
        let nobody = Witness::none();
        let starting = AssertUnwindSafe(self.box_for(&spec, &progress, &nobody)).catch_unwind();
        let outcome = match starting.await {
            Ok(Ok(begun)) => self.admit_box(begun),
            Ok(Err(error)) => {
                tracing::warn!(session = %spec.session(), %error, "a box did not start");
                lock(&self.slots).remove(spec.session());
                Err(error)
            }
            Err(_panic) => {
                lock(&self.slots).remove(spec.session());
                Err(SessionError::Internal {
                    step: "the backend panicked while it started a box",
                })
            }
        };
        settle.send_replace(Some(outcome));
    }

    fn admit_box(self: &Arc<Self>, begun: Begun) -> Result<(), SessionError> {
        let session = Arc::new(Session::new(
            begun.spec,
            begun.sandbox,
            begun.backend,
            self.incarnations.fetch_add(1, Ordering::Relaxed),
            self.events.clone(),
        ));
        let incarnation = session.incarnation;
        self.events
            .emit(&session.id, || EventKind::SessionCreated { incarnation });
        let mut slots = lock(&self.slots);
        // The slot is there: only this start takes it away. Should it not be, the box must go.
        let next = match slots.get_mut(&session.id) {
            Some(slot) => slot.started(Arc::clone(&session)),
            None => Started::Stop {
                session: Arc::clone(&session),
                why: "superseded".to_owned(),
                closed: watch::Sender::new(None),
            },
        };
        drop(slots);
        match next {
            Started::Serve => {
                tokio::spawn(watch_box(Arc::downgrade(self), session));
                Ok(())
            }
            Started::Stop {
                session,
                why,
                closed,
            } => {
                let id = session.id.clone();
                self.stop_later(session, Ending::Asked, why, closed);
                Err(SessionError::DeletedWhileStarting { session: id })
            }
        }
    }

    /// A living session, waited for while it starts, never created.
    pub(crate) async fn existing(&self, id: &SessionId) -> Result<Lease, SessionError> {
        loop {
            let found = match lock(&self.slots).get(id) {
                Some(Slot::Ready { session }) if session.sandbox.is_alive() => {
                    Ok(Lease::new(session))
                }
                Some(Slot::Ready { session }) => {
                    return Err(SessionError::Gone {
                        session: session.id.clone(),
                    });
                }
                Some(Slot::Starting { started, .. }) => Err(started.clone()),
                Some(Slot::Closing { .. }) | None => return Err(not_found(id)),
            };
            match found {
                Ok(lease) => return lease.awake().await,
                Err(starting) => settled(starting).await?,
            }
        }
    }

    /// A living session, without waiting and without counting as use.
    pub(crate) fn peek(&self, id: &SessionId) -> Result<Arc<Session>, SessionError> {
        match lock(&self.slots).get(id) {
            Some(Slot::Ready { session }) => Ok(Arc::clone(session)),
            Some(Slot::Starting { .. } | Slot::Closing { .. }) | None => Err(not_found(id)),
        }
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

    pub(crate) fn ids(&self) -> Vec<SessionId> {
        lock(&self.slots)
            .iter()
            .filter(|(_, slot)| !matches!(slot, Slot::Closing { .. }))
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

    pub(crate) async fn delete(
        self: &Arc<Self>,
        id: &SessionId,
        why: &str,
    ) -> Result<(), SessionError> {
        let started = match self.begin_close(id, why, |_| true) {
            None => return Err(not_found(id)),
            Some(Close::Stop { session, closed }) => {
                let done = closed.subscribe();
                self.stop_later(session, Ending::Asked, why.to_owned(), closed);
                return settled(done).await;
            }
            Some(Close::UnderWay(closed)) => return settled(closed).await,
            Some(Close::AfterStart(started)) => started,
        };
        // The start ends either in a removal, which is then under way, or in an error, which
        // leaves nothing: both are what was asked for.
        let _ = settled(started).await;
        let closed = match lock(&self.slots).get(id) {
            Some(Slot::Closing { closed }) => closed.clone(),
            Some(_) | None => return Ok(()),
        };
        settled(closed).await
    }

    /// Closes this very session if it is still the one in its slot and `wanted` says so under the
    /// lock. Does not wait.
    pub(crate) fn close_if(
        self: &Arc<Self>,
        session: &Arc<Session>,
        ending: Ending,
        why: &str,
        wanted: impl FnOnce(&Session) -> bool,
    ) {
        let same = |found: &Arc<Session>| Arc::ptr_eq(found, session) && wanted(found);
        if let Some(Close::Stop { session, closed }) = self.begin_close(&session.id, why, same) {
            self.stop_later(session, ending, why.to_owned(), closed);
        }
    }

    /// Gets a dead session out of the way; what comes back settles when it is.
    fn close_dead(self: &Arc<Self>, session: &Arc<Session>) -> Settled {
        self.close_if(session, Ending::Died, "its box died", |_| true);
        self.closing(&session.id)
    }

    /// Settles when the removal that is under way, if any, is over.
    pub(crate) fn closing(&self, id: &SessionId) -> Settled {
        match lock(&self.slots).get(id) {
            Some(Slot::Closing { closed }) => closed.clone(),
            Some(_) | None => watch::channel(Some(Ok(()))).1,
        }
    }

    fn begin_close(
        &self,
        id: &SessionId,
        why: &str,
        wanted: impl FnOnce(&Arc<Session>) -> bool,
    ) -> Option<Close<Arc<Session>>> {
        let mut slots = lock(&self.slots);
        let slot = slots.get_mut(id)?;
        match slot {
            Slot::Ready { session } if !wanted(session) => None,
            _ => Some(slot.close(why)),
        }
    }

    /// Stops the box in a task, frees the slot, settles `closed`.
    fn stop_later(
        self: &Arc<Self>,
        session: Arc<Session>,
        ending: Ending,
        why: String,
        closed: Settle,
    ) {
        session.end(ending);
        let registry = Arc::clone(self);
        tokio::spawn(async move {
            let stopping = AssertUnwindSafe(stop_session(&session, ending)).catch_unwind();
            let outcome = stopping.await.unwrap_or(Err(SessionError::Internal {
                step: "the backend panicked while it removed a box",
            }));
            if let Err(error) = &outcome {
                tracing::error!(session = %session.id, %error, "a box was not removed cleanly");
            }
            lock(&registry.slots).remove(&session.id);
            registry
                .events
                .emit(&session.id, || EventKind::SessionDeleted { why });
            closed.send_replace(Some(outcome));
        });
    }

    /// Refuses new sessions, removes all there are, then lets the backends go.
    pub(crate) async fn shutdown(self: &Arc<Self>) {
        {
            // Under the lock, so that no start can slip in behind the last look below.
            let _slots = lock(&self.slots);
            self.shutting_down.store(true, Ordering::Release);
        }
        loop {
            let ids: Vec<_> = lock(&self.slots).keys().cloned().collect();
            if ids.is_empty() {
                break;
            }
            // Errors were logged where they happened; a shutdown goes on.
            join_all(
                ids.iter()
                    .map(|id| self.delete(id, "the daemon shuts down")),
            )
            .await;
        }
        self.warm.drain().await;
        self.backends.shutdown().await;
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

/// Takes notice when a box dies by itself.
async fn watch_box(registry: Weak<Registry>, session: Arc<Session>) {
    tokio::select! {
        () = session.sandbox.gone() => {}
        () = session.ended() => return,
    }
    if let Some(registry) = registry.upgrade() {
        registry.close_if(&session, Ending::Died, "its box died", |_| true);
    }
}

async fn stop_session(session: &Session, ending: Ending) -> Result<(), SessionError> {
    let processes = session.processes.all();
    let _attended = Attended::new(&session.activity);
    if ending == Ending::Asked {
        // To be asked to end, a program has to be awake. One that cannot be woken is killed.
        if let Err(error) = session.activity.frost.thaw().await {
            tracing::warn!(session = %session.id, %error, "a box that goes could not be woken");
        }
        let running = processes.iter().filter(|process| process.is_running());
        let terminating = join_all(running.map(|process| process.terminate(CLOSE_GRACE)));
        // Whatever is left then goes with the box.
        let _ = timeout(CLOSE_GRACE * 2, terminating).await;
    }
    for process in &processes {
        process.abandon();
    }
    session
        .sandbox
        .stop()
        .await
        .map_err(|source| SessionError::Stop {
            session: session.id.clone(),
            source: Arc::new(source),
        })
}

fn not_found(id: &SessionId) -> SessionError {
    SessionError::NotFound {
        session: id.clone(),
    }
}
