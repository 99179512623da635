//! How sessions come to their ends.
//!
//! Comes in: deletes, the news that a box died, the daemon's own end. Goes out: boxes that are stopped,
//! or that are let go of for the next daemon. A removal is a task of its own, so a caller that vanishes
//! leaves no half of one. A session is struck off the ledger when its box is gone, and never before.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{EventKind, SessionId};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::SessionError;
use crate::activity::{Attended, lock};
use crate::registry::Registry;
use crate::session::{Ending, Handle, Session};
use crate::settings::ShutdownBoxes;
use crate::slot::{Close, Settle, Settled, Slot, settled};

/// For managed processes whose whole session goes: shorter than a stop of their own, because
/// somebody waits for the session to be gone.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

const SHUTDOWN: &str = "the daemon shuts down";

impl Registry {
    pub(crate) async fn delete<'a>(
        self: &Arc<Self>,
        handle: impl Into<Handle<'a>>,
        why: &str,
    ) -> Result<(), SessionError> {
        let handle = handle.into();
        let started = match self.begin_close(handle, why, |_| true)? {
            None if self.is_let_go(handle.id) => return Err(SessionError::ShuttingDown),
            None => return Err(self.missing(handle)),
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
        let closed = match lock(&self.slots).get(handle.id) {
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
        let handle = Handle::from(&session.id);
        // Everybody's sessions are the registry's, so nothing bars it.
        if let Ok(Some(Close::Stop { session, closed })) = self.begin_close(handle, why, same) {
            self.stop_later(session, ending, why.to_owned(), closed);
        }
    }

    /// Gets a dead session out of the way; what comes back settles when it is.
    pub(crate) fn close_dead(self: &Arc<Self>, session: &Arc<Session>) -> Settled {
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
        handle: Handle<'_>,
        why: &str,
        wanted: impl FnOnce(&Arc<Session>) -> bool,
    ) -> Result<Option<Close<Arc<Session>>>, SessionError> {
        let mut slots = lock(&self.slots);
        if let Some(error) = self.barred(handle, slots.get(handle.id)) {
            return Err(error);
        }
        let Some(slot) = slots.get_mut(handle.id) else {
            return Ok(None);
        };
        Ok(match slot {
            Slot::Ready { session } if session.is_let_go() || !handle.means(session) => None,
            Slot::Ready { session } if !wanted(session) => None,
            // Whoever means a certain one means none that is still to come.
            Slot::Starting { .. } if handle.incarnation.is_some() => None,
            _ => Some(slot.close(why)),
        })
    }

    fn is_let_go(&self, id: &SessionId) -> bool {
        matches!(lock(&self.slots).get(id), Some(Slot::Ready { session }) if session.is_let_go())
    }

    /// Stops the box in a task, frees the slot, settles `closed`.
    pub(crate) fn stop_later(
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
            let (id, incarnation) = (&session.id, session.incarnation);
            registry.ledger.end(id, incarnation, &why).await;
            lock(&registry.slots).remove(id);
            registry
                .events
                .emit(id, || EventKind::SessionDeleted { why });
            closed.send_replace(Some(outcome));
        });
    }

    /// Refuses new sessions, and lets go of the boxes that live on: from here on nothing that is
    /// dropped, be it a client's connection, ends anything in them. [`Registry::shutdown`] does the rest.
    pub(crate) fn begin_shutdown(&self, boxes: ShutdownBoxes) {
        {
            // Under the lock, so that no start can slip in behind the looks that follow.
            let _slots = lock(&self.slots);
            self.shutting_down.store(true, Ordering::Release);
        }
        // What else there is to do is looked for again.
        let _ = self.part(boxes);
    }

    /// Refuses new sessions, removes those that are not to outlive this daemon, lets go of the
    /// others, then lets the backends go.
    pub(crate) async fn shutdown(self: &Arc<Self>, boxes: ShutdownBoxes) {
        self.begin_shutdown(boxes);
        self.warm.drain().await;
        loop {
            let (starting, going) = self.part(boxes);
            if starting.is_empty() && going.is_empty() {
                break;
            }
            // Errors were logged where they happened; a shutdown goes on.
            join_all(starting.into_iter().map(settled)).await;
            join_all(going.iter().map(|id| self.delete(id, SHUTDOWN))).await;
        }
        self.backends.shutdown().await;
        self.ledger.close().await;
    }

    /// Lets go of the boxes that live on. What comes back is what has to settle first, and what has
    /// to be removed.
    fn part(&self, boxes: ShutdownBoxes) -> (Vec<Settled>, Vec<SessionId>) {
        let (mut starting, mut going) = (Vec::new(), Vec::new());
        for (id, slot) in &*lock(&self.slots) {
            match slot {
                Slot::Ready { session } if session.is_let_go() => {}
                Slot::Ready { session } if lives_on(session, boxes) => {
                    session.let_go();
                    tracing::info!(session = %id, "a box lives on for the next daemon");
                }
                Slot::Starting { started, .. } if boxes != ShutdownBoxes::Stop => {
                    starting.push(started.clone());
                }
                Slot::Ready { .. } | Slot::Starting { .. } | Slot::Closing { .. } => {
                    going.push(id.clone());
                }
            }
        }
        (starting, going)
    }
}

fn lives_on(session: &Session, boxes: ShutdownBoxes) -> bool {
    let wanted = match boxes {
        ShutdownBoxes::Stop => false,
        ShutdownBoxes::Keep => true,
        ShutdownBoxes::StopEphemeral => session.spec.persistent(),
    };
    wanted && session.backend.capabilities().adoption && session.sandbox.is_alive()
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
