//! Starts a box and makes it a session.
//!
//! The box is recorded in the ledger before it can outlive this process, and it gets its own record
//! before callers learn of the session.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use boxwood_api::{EventKind, SessionId};
use boxwood_backend::{BoxHandle, StartRecorder};
use boxwood_ledger::{Lease as Hold, Ledger, LedgerError, Row, State};
use boxwood_policy::{AdmittedSpec, SpecRecord};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::SessionError;
use crate::backends::Begun;
use crate::quota;
use crate::recovery::record::identify;
use crate::session::activity::lock;
use crate::session::mounts::Mounts;
use crate::session::registry::Registry;
use crate::session::state::{Settle, Started};
use crate::session::{Ending, Parts, Session};

impl Registry {
    /// Starts the box and settles the slot.
    pub(crate) async fn start(self: Arc<Self>, spec: Arc<AdmittedSpec>, settle: Settle) {
        let birth = Birth::new(&self.ledger, &spec);
        let making = AssertUnwindSafe(self.make(&spec, &birth)).catch_unwind();
        let made = making.await.unwrap_or(Err(SessionError::Internal {
            step: "starting the box (the backend panicked)",
        }));
        let outcome = match made {
            Ok(session) => self.serve(session),
            Err(error) => {
                tracing::warn!(session = %spec.session(), %error, "failed to start the box of a session");
                self.ledger.forget(birth.incarnation);
                lock(&self.slots).remove(spec.session());
                Err(error)
            }
        };
        settle.send_replace(Some(outcome));
    }

    /// Returns a box that is recorded. After an error there is no box.
    async fn make(
        &self,
        spec: &Arc<AdmittedSpec>,
        birth: &Birth,
    ) -> Result<Arc<Session>, SessionError> {
        let witness = birth.witness();
        let progress = self.events.progress_of(spec.session());
        let begun = self.box_for(spec, &progress, &witness).await;
        // An error of the ledger is more precise than that of the backend.
        let begun = begun.map_err(|error| birth.failure().unwrap_or(error))?;
        let session = Arc::new(Session::new(
            birth.parts(begun),
            self.events.clone(),
            self.gate.budget.clone(),
        ));
        let watched = quota::watch(&session, &self.settings);
        let watched = watched.map_err(|error| SessionError::unwatched(&session.id, &error));
        let finished = match watched {
            Ok(()) => birth.finish(&session).await,
            Err(error) => Err(error),
        };
        if let Err(error) = finished {
            if let Err(error) = session.sandbox.stop().await {
                tracing::error!(session = %session.id, %error, "failed to remove the box of a session");
            }
            return Err(error);
        }
        Ok(session)
    }

    fn serve(self: &Arc<Self>, session: Arc<Session>) -> Result<(), SessionError> {
        let incarnation = session.incarnation;
        self.events
            .emit(&session.id, || EventKind::SessionCreated { incarnation });
        let mut slots = lock(&self.slots);
        // Only this start can remove the slot. If it is missing, the box is removed.
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
struct Birth {
    ledger: Ledger,
    session: SessionId,
    incarnation: u64,
    created_at: Timestamp,
    spec: SpecRecord,
    told: Arc<Mutex<Told>>,
}

/// The result of writing the row.
#[derive(Default)]
struct Told {
    written: bool,
    failed: Option<LedgerError>,
}

impl Birth {
    fn new(ledger: &Ledger, spec: &AdmittedSpec) -> Self {
        Self {
            ledger: ledger.clone(),
            session: spec.session().clone(),
            incarnation: ledger.next_incarnation(),
            created_at: Timestamp::now(),
            spec: spec.record(&identify),
            told: Arc::default(),
        }
    }

    fn witness(&self) -> StartRecorder {
        let birth = self.clone();
        StartRecorder::new(move |handle| {
            let birth = birth.clone();
            Box::pin(async move { birth.write(handle).await.map_err(io::Error::other) })
        })
    }

    async fn write(&self, handle: BoxHandle) -> Result<(), LedgerError> {
        let spec = self.spec.on_backend(&handle.backend);
        let row = Row {
            incarnation: self.incarnation,
            session: self.session.clone(),
            backend: handle.backend,
            name: handle.name,
            socket: handle.socket,
            spec: serde_json::to_string(&spec).unwrap_or_default(),
            lease: Hold::here(),
            state: State::Starting,
            created_at: self.created_at,
        };
        let outcome = self.ledger.insert(row).await;
        let mut told = lock(&self.told);
        told.written |= outcome.is_ok();
        told.failed = outcome.clone().err();
        outcome
    }

    fn failure(&self) -> Option<SessionError> {
        let failed = lock(&self.told).failed.take()?;
        Some(SessionError::unrecorded(&self.session, failed))
    }

    fn parts(&self, begun: Begun) -> Parts {
        Parts {
            incarnation: self.incarnation,
            mounts: Mounts::new(&begun.spec),
            spec_record: self.spec.on_backend(begun.backend.name()),
            spec: begun.spec,
            sandbox: begun.sandbox,
            backend: begun.backend,
            created_at: self.created_at,
            adopted_at: None,
        }
    }

    /// Records that the box exists, and which session it belongs to.
    async fn finish(&self, session: &Session) -> Result<(), SessionError> {
        let written = lock(&self.told).written;
        if !written {
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
