//! How a box comes to be a session.
//!
//! Comes in: an admitted spec whose slot is taken. Goes out: a session that is served, or an error and
//! nothing left. Never here: a moment at which a box could be lost. It is on the ledger before it can
//! outlive this process, and it knows whose it is before anybody is told of it.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use boxwood_api::{EventKind, SessionId};
use boxwood_backend::{BoxHandle, Witness};
use boxwood_ledger::{Lease as Hold, Ledger, LedgerError, Row, State};
use boxwood_policy::{AdmittedSpec, SpecRecord};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::SessionError;
use crate::activity::lock;
use crate::backends::Begun;
use crate::mounts::Mounts;
use crate::record::identify;
use crate::registry::Registry;
use crate::session::{Ending, Parts, Session};
use crate::slot::{Settle, Started};

impl Registry {
    /// Makes the box and settles the slot, whichever way it goes.
    pub(crate) async fn start(self: Arc<Self>, spec: Arc<AdmittedSpec>, settle: Settle) {
        let birth = Birth::new(&self.ledger, &spec);
        let making = AssertUnwindSafe(self.make(&spec, &birth)).catch_unwind();
        let made = making.await.unwrap_or(Err(SessionError::Internal {
            step: "the backend panicked while it started a box",
        }));
        let outcome = match made {
            Ok(session) => self.serve(session),
            Err(error) => {
                tracing::warn!(session = %spec.session(), %error, "a box did not start");
                self.ledger.forget(birth.incarnation);
                lock(&self.slots).remove(spec.session());
                Err(error)
            }
        };
        settle.send_replace(Some(outcome));
    }

    /// A box that is on record. After an error there is none.
    async fn make(
        &self,
        spec: &Arc<AdmittedSpec>,
        birth: &Birth,
    ) -> Result<Arc<Session>, SessionError> {
        let witness = birth.witness();
        let progress = self.events.progress_of(spec.session());
        let begun = self.box_for(spec, &progress, &witness).await;
        // What the ledger said is more to the point than what the backend made of it.
        let begun = begun.map_err(|error| birth.failure().unwrap_or(error))?;
        let session = Arc::new(Session::new(
            birth.parts(begun),
            self.events.clone(),
            self.gate.budget.clone(),
        ));
        let watched = self.quotas.watch(&session);
        let watched = watched.map_err(|error| SessionError::unwatched(&session.id, &error));
        let finished = match watched {
            Ok(()) => birth.finish(&session).await,
            Err(error) => Err(error),
        };
        if let Err(error) = finished {
            if let Err(error) = session.sandbox.stop().await {
                tracing::error!(session = %session.id, %error, "a box was not removed cleanly");
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
}

/// Takes notice when a box dies by itself.
pub(crate) async fn watch_box(registry: Weak<Registry>, session: Arc<Session>) {
    tokio::select! {
        () = session.sandbox.gone() => {}
        () = session.ended() => return,
    }
    if let Some(registry) = registry.upgrade() {
        registry.close_if(&session, Ending::Died, "its box died", |_| true);
    }
}

/// A session that is on its way, as the ledger is told of it.
#[derive(Clone)]
struct Birth {
    ledger: Ledger,
    session: SessionId,
    incarnation: u64,
    created_at: Timestamp,
    spec: SpecRecord,
    told: Arc<Mutex<Told>>,
}

/// What became of telling the ledger.
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

    fn witness(&self) -> Witness {
        let birth = self.clone();
        Witness::new(move |handle| {
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

    /// The box is there: after this, whoever comes next knows whose it is.
    async fn finish(&self, session: &Session) -> Result<(), SessionError> {
        let written = lock(&self.told).written;
        if !written {
            // It ends with this process, and how it ended is worth knowing all the same.
            let handle = BoxHandle {
                backend: session.backend.name().to_owned(),
                name: session.sandbox.id().to_owned(),
                socket: PathBuf::new(),
            };
            self.write(handle)
                .await
                .map_err(|source| SessionError::unrecorded(&self.session, source))?;
        }
        session.remember().await?;
        self.ledger.ready(self.incarnation).await;
        Ok(())
    }
}
