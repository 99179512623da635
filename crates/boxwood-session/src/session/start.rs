//! Starts a box and makes it a session.
//!
//! The box is recorded in the ledger before it can outlive this process, and it gets its own record
//! before callers learn of the session.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use boxwood_api::{EventKind, SessionId, with_causes};
use boxwood_backend::{BoxHandle, StartRecorder};
use boxwood_ledger::{Ledger, LedgerError, Row, State, current_boot};
use boxwood_policy::AdmittedSpec;
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::quota;
use crate::recovery::record::identify;
use crate::session::activity::lock;
use crate::session::mounts::Mounts;
use crate::session::registry::Registry;
use crate::session::state::Settle;
use crate::session::{Ending, Parts, Session};
use crate::{Result, SessionError};

impl Registry {
    /// Starts the box and settles the slot.
    pub(crate) async fn start(self: Arc<Self>, spec: Arc<AdmittedSpec>, settle: Settle) {
        let row = NewRow::new(&self.ledger, spec.session());
        let creating = AssertUnwindSafe(self.create(&spec, &row)).catch_unwind();
        let created = creating.await.unwrap_or(Err(SessionError::internal(
            "starting the box (the backend panicked)",
        )));
        let outcome = match created {
            Ok(session) => self.serve(session),
            Err(error) => {
                tracing::warn!(session = %spec.session(), error = %with_causes(&error), "failed to start the box of a session");
                self.ledger.forget(row.incarnation);
                lock(&self.slots).remove(spec.session());
                Err(error)
            }
        };
        settle.send_replace(Some(outcome));
    }

    /// Returns a box that is recorded. After an error there is no box.
    async fn create(&self, spec: &Arc<AdmittedSpec>, row: &NewRow) -> Result<Arc<Session>> {
        let progress = self.events.progress_of(spec.session());
        let started = self.box_for(spec, &progress, &row.recorder()).await;
        // An error of the ledger is more precise than that of the backend.
        let started = started.map_err(|error| row.failure().unwrap_or(error))?;
        let parts = Parts {
            incarnation: row.incarnation,
            mounts: Mounts::new(&started.spec),
            spec_record: started.spec.record(&identify),
            spec: started.spec,
            sandbox: started.sandbox,
            backend: started.backend,
            created_at: row.created_at,
            adopted_at: None,
        };
        let session = Arc::new(Session::new(parts, self));
        let watched = quota::watch(&session, &self.settings);
        let watched = watched.map_err(|error| {
            let what = format!("failed to read the free space of a mounted directory: {error}");
            SessionError::invalid(what)
        });
        let finished = match watched {
            Ok(()) => row.finish(&session).await,
            Err(error) => Err(error),
        };
        if let Err(error) = finished {
            if let Err(error) = session.sandbox.stop().await {
                tracing::error!(session = %session.id, error = %with_causes(&error), "failed to remove the box of a session");
            }
            return Err(error);
        }
        Ok(session)
    }

    fn serve(self: &Arc<Self>, session: Arc<Session>) -> Result<()> {
        let incarnation = session.incarnation;
        self.events
            .emit(&session.id, || EventKind::SessionCreated { incarnation });
        let mut slots = lock(&self.slots);
        let stop = match slots.get_mut(&session.id) {
            Some(slot) => slot.started(Arc::clone(&session)),
            // Only this start can remove the slot.
            None => Some(("superseded".to_owned(), watch::Sender::new(None))),
        };
        drop(slots);
        let Some((why, closed)) = stop else {
            tokio::spawn(watch_box(Arc::downgrade(self), session));
            return Ok(());
        };
        let id = session.id.clone();
        self.stop_later(session, Ending::Requested, why, closed);
        Err(SessionError::DeletedWhileStarting { session: id })
    }
}

/// Closes the session if its box dies.
pub(crate) async fn watch_box(registry: Weak<Registry>, session: Arc<Session>) {
    tokio::select! {
        () = session.sandbox.gone() => {}
        () = session.ended() => return,
    }
    if let Some(registry) = registry.upgrade() {
        registry.close_dead(&session);
    }
}

/// The row of a session that is being started.
#[derive(Clone)]
struct NewRow {
    ledger: Ledger,
    session: SessionId,
    incarnation: u64,
    created_at: Timestamp,
    /// The result of the last write; `None` if the backend has not reported the box.
    written: Arc<Mutex<Option<Result<(), LedgerError>>>>,
}

impl NewRow {
    fn new(ledger: &Ledger, session: &SessionId) -> Self {
        Self {
            ledger: ledger.clone(),
            session: session.clone(),
            incarnation: ledger.next_incarnation(),
            created_at: Timestamp::now(),
            written: Arc::default(),
        }
    }

    fn recorder(&self) -> StartRecorder {
        let row = self.clone();
        StartRecorder::new(move |handle| {
            let row = row.clone();
            Box::pin(async move { row.write(handle).await.map_err(io::Error::other) })
        })
    }

    async fn write(&self, handle: BoxHandle) -> Result<(), LedgerError> {
        let row = Row {
            incarnation: self.incarnation,
            session: self.session.clone(),
            backend: handle.backend,
            name: handle.name,
            socket: handle.socket,
            boot: current_boot().to_owned(),
            state: State::Starting,
            created_at: self.created_at,
        };
        let outcome = self.ledger.insert(row).await;
        *lock(&self.written) = Some(outcome.clone());
        outcome
    }

    fn failure(&self) -> Option<SessionError> {
        let error = lock(&self.written).take()?.err()?;
        Some(SessionError::unrecorded(&self.session, error))
    }

    /// Records that the box exists, and which session it belongs to.
    async fn finish(&self, session: &Session) -> Result<()> {
        let is_written = matches!(*lock(&self.written), Some(Ok(())));
        if !is_written {
            // It does not outlive this process, but its end is recorded.
            let handle = BoxHandle {
                backend: session.backend.name().to_owned(),
                name: session.sandbox.id().to_owned(),
                socket: PathBuf::new(),
            };
            self.write(handle)
                .await
                .map_err(|source| SessionError::unrecorded(&self.session, source))?;
        }
        session.write_record().await?;
        self.ledger.ready(self.incarnation).await;
        Ok(())
    }
}
