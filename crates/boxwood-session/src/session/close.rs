//! Removes sessions, or detaches their boxes for the next daemon.
//!
//! A removal runs in a task, so that it is completed even if the caller disconnects. The ledger
//! keeps the box until the backend has finished removing it, so that a daemon that is killed in between
//! leaves no unknown box.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{EventKind, SessionId, with_causes};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::DIED;
use crate::session::activity::{Use, lock};
use crate::session::registry::Registry;
use crate::session::state::{Close, SessionState, Settle, Settled, settled};
use crate::session::{Ending, Handle, Session};
use crate::settings::ShutdownBoxes;
use crate::{Result, SessionError};

/// Grace period of managed processes when their session is removed. Short, because the caller waits.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

const SHUTDOWN: &str = "the daemon shuts down";

impl Registry {
    pub(crate) async fn delete(self: &Arc<Self>, handle: Handle<'_>, why: &str) -> Result<()> {
        let started = match self.begin_close(handle, why, |_| true)? {
            None if self.is_detached(handle.id) => return Err(SessionError::ShuttingDown),
            None => return Err(self.missing(handle)),
            Some(Close::Stop { session, closed }) => {
                let removal = closed.subscribe();
                self.stop_later(session, Ending::Requested, why.to_owned(), closed);
                return settled(removal).await;
            }
            Some(Close::UnderWay(closed)) => return settled(closed).await,
            Some(Close::AfterStart(started)) => started,
        };
        // The start ends with a removal or with an error. Nothing is left in either case.
        let _ = settled(started).await;
        settled(self.closing(handle.id)).await
    }

    /// Closes this session if it is still the one in its slot and `condition` returns true under the lock.
    /// Does not wait.
    pub(crate) fn close_if(
        self: &Arc<Self>,
        session: &Arc<Session>,
        ending: Ending,
        why: &str,
        condition: impl FnOnce(&Session) -> bool,
    ) {
        let is_same = |found: &Arc<Session>| Arc::ptr_eq(found, session) && condition(found);
        let handle = Handle::from(&session.id);
        // The registry has access to all sessions.
        if let Ok(Some(Close::Stop { session, closed })) = self.begin_close(handle, why, is_same) {
            self.stop_later(session, ending, why.to_owned(), closed);
        }
    }

    /// Removes a session because a program in it could not be killed. Does not wait.
    pub(crate) fn close_unkillable(self: &Arc<Self>, session: &Arc<Session>) {
        let why = "a program in it could not be killed";
        tracing::error!(session = %session.id, why, "removing a session");
        self.close_if(session, Ending::Died, why, |_| true);
    }

    /// Removes a dead session. The result settles when it is removed.
    pub(crate) fn close_dead(self: &Arc<Self>, session: &Arc<Session>) -> Settled {
        self.close_if(session, Ending::Died, DIED, |_| true);
        self.closing(&session.id)
    }

    /// Settles when the removal in progress, if any, is over.
    pub(crate) fn closing(&self, id: &SessionId) -> Settled {
        match lock(&self.slots).get(id) {
            Some(SessionState::Closing { closed }) => closed.clone(),
            Some(_) | None => watch::channel(Some(Ok(()))).1,
        }
    }

    fn begin_close(
        &self,
        handle: Handle<'_>,
        why: &str,
        condition: impl FnOnce(&Arc<Session>) -> bool,
    ) -> Result<Option<Close<Arc<Session>>>> {
        let mut slots = lock(&self.slots);
        self.check_access(handle, slots.get(handle.id))?;
        let Some(slot) = slots.get_mut(handle.id) else {
            return Ok(None);
        };
        Ok(match slot {
            SessionState::Ready { session }
                if session.is_detached() || !handle.matches(session) || !condition(session) =>
            {
                None
            }
            // A session with a certain incarnation is not still to be started.
            SessionState::Starting { .. } if handle.incarnation.is_some() => None,
            _ => Some(slot.close(why)),
        })
    }

    fn is_detached(&self, id: &SessionId) -> bool {
        matches!(lock(&self.slots).get(id), Some(SessionState::Ready { session }) if session.is_detached())
    }

    /// Stops the box in a task, frees the slot and settles `closed`.
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
            let outcome = stopping.await.unwrap_or(Err(SessionError::internal(
                "removing the box (the backend panicked)",
            )));
            if let Err(error) = &outcome {
                tracing::error!(session = %session.id, error = %with_causes(error), "failed to remove the box of a session");
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

    /// Refuses new sessions and detaches the boxes that stay. From now on a dropped connection ends
    /// nothing in them. [`Registry::shutdown`] does the rest.
    pub(crate) fn begin_shutdown(&self, boxes: ShutdownBoxes) {
        {
            // Under the lock, so that no session is started after it.
            let _slots = lock(&self.slots);
            self.shutting_down.store(true, Ordering::Release);
        }
        // [`Registry::shutdown`] collects the rest again.
        let _ = self.detach_boxes(boxes);
    }

    /// Refuses new sessions, removes those that must not outlive this daemon, detaches the others, and
    /// shuts the backends down.
    pub(crate) async fn shutdown(self: &Arc<Self>, boxes: ShutdownBoxes) {
        self.begin_shutdown(boxes);
        self.warm.drain().await;
        loop {
            let (starting, to_remove) = self.detach_boxes(boxes);
            if starting.is_empty() && to_remove.is_empty() {
                break;
            }
            // Errors have been logged; the shutdown continues.
            join_all(starting.into_iter().map(settled)).await;
            join_all(to_remove.iter().map(|id| self.delete(id.into(), SHUTDOWN))).await;
        }
        self.backends.shutdown().await;
        self.ledger.close().await;
    }

    /// Detaches the boxes that stay. Returns the starts to wait for and the sessions to remove.
    fn detach_boxes(&self, boxes: ShutdownBoxes) -> (Vec<Settled>, Vec<SessionId>) {
        let (mut starting, mut to_remove) = (Vec::new(), Vec::new());
        for (id, slot) in &*lock(&self.slots) {
            match slot {
                SessionState::Ready { session } if session.is_detached() => {}
                SessionState::Ready { session } if outlives_daemon(session, boxes) => {
                    session.detach();
                    tracing::info!(session = %id, "detaching a box for the next daemon");
                }
                SessionState::Starting { started, .. } if boxes != ShutdownBoxes::Stop => {
                    starting.push(started.clone());
                }
                SessionState::Ready { .. }
                | SessionState::Starting { .. }
                | SessionState::Closing { .. } => {
                    to_remove.push(id.clone());
                }
            }
        }
        (starting, to_remove)
    }
}

fn outlives_daemon(session: &Session, boxes: ShutdownBoxes) -> bool {
    let may_outlive = match boxes {
        ShutdownBoxes::Stop => false,
        ShutdownBoxes::Keep => true,
        ShutdownBoxes::StopEphemeral => session.spec.persistent(),
    };
    may_outlive && session.backend.capabilities().adoption && session.sandbox.is_alive()
}

async fn stop_session(session: &Session, ending: Ending) -> Result<()> {
    let processes = session.processes.all();
    let _attended = Use::attended(&session.activity);
    if ending == Ending::Requested {
        // A frozen program cannot handle SIGTERM. If thawing fails, it is killed.
        if let Err(error) = session.activity.freeze_state.thaw().await {
            tracing::warn!(session = %session.id, error = %with_causes(&error), "failed to thaw a box before its removal; its processes will be killed");
        }
        let running = processes.iter().filter(|process| process.is_running());
        let terminating = join_all(running.map(|process| process.terminate(CLOSE_GRACE)));
        // The rest is killed with the box.
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
