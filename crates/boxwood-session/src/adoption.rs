//! Takes over what an earlier daemon left running.
//!
//! Comes in: the ledger's rows, and what the backends find by themselves. Goes out: sessions as they
//! were, and word of those that are no more. Never here: trust in the ledger. A box that runs and knows
//! whose it is becomes a session whether it is written down or not, and a row without a box becomes an
//! end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::SessionId;
use boxwood_backend::{AdoptError, Backend, BoxHandle, KeptProcess, Sandbox};
use boxwood_ledger::{Lease, Row, State};
use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::activity::lock;
use crate::processes;
use crate::record::Restored;
use crate::registry::Registry;
use crate::session::{Parts, Session};
use crate::slot::Slot;
use crate::starting::watch_box;

/// Boxes that are taken over at the same time.
const AT_ONCE: usize = 16;

/// A box that does not answer for so long is not one that anybody could work with.
const LONGEST: Duration = Duration::from_secs(15);

const DIED: &str = "its box died while no daemon ran";
const UNFINISHED: &str = "its box was never finished";
const WENT_ALONG: &str = "its box ended with the daemon that made it";
const OTHER_BOOT: &str = "the machine was restarted";
const NO_ANSWER: &str = "its box did not answer the daemon that was to take it over";

/// What came of an earlier daemon's boxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Sessions that go on.
    pub adopted: usize,
    pub lost: Vec<Lost>,
    /// Some of them were not in the ledger, which now has them.
    pub rebuilt: bool,
}

/// A session that somebody was told of, and that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub session: SessionId,
    pub incarnation: u64,
    pub why: String,
}

/// A box that may be there.
struct Candidate {
    handle: BoxHandle,
    row: Option<Row>,
    backend: Arc<dyn Backend>,
}

/// A box that is there, and the session it is of.
struct Taken {
    row: Option<Row>,
    handle: BoxHandle,
    backend: Arc<dyn Backend>,
    sandbox: Arc<dyn Sandbox>,
    restored: Restored,
    processes: Vec<KeptProcess>,
}

/// A box that is not to be had.
struct Missed {
    row: Option<Row>,
    why: String,
}

enum Failed {
    ForGood(Missed),
    ForNow(Candidate, String),
}

impl Failed {
    fn into_missed(self) -> Missed {
        match self {
            Self::ForGood(missed) => missed,
            Self::ForNow(candidate, why) => Missed {
                row: candidate.row,
                why,
            },
        }
    }
}

impl Registry {
    /// To be called once, before anybody is served.
    pub(crate) async fn recover(self: &Arc<Self>) -> Recovery {
        let rows = self.ledger.rows().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the ledger cannot be read; sessions are found by what runs");
            Vec::new()
        });
        let (candidates, mut missed) = self.candidates(rows).await;
        let outcomes: Vec<_> = stream::iter(candidates.into_iter().map(take))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let (mut taken, mut again) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Ok(one) => taken.push(one),
                Err(Failed::ForGood(one)) => missed.push(one),
                Err(Failed::ForNow(candidate, _)) => again.push(candidate),
            }
        }
        // What is not adopted goes: a host that was too busy for all at once gets a second chance, with
        // one after the other.
        for candidate in again {
            match take(candidate).await {
                Ok(one) => taken.push(one),
                Err(failed) => missed.push(failed.into_missed()),
            }
        }
        // Should two boxes be of one session, the later one is what its callers know.
        taken.sort_by_key(|taken| std::cmp::Reverse(taken.restored.incarnation));
        let mut recovery = Recovery::default();
        for one in taken {
            let rebuilt = one.row.is_none();
            match self.install(one) {
                None => {
                    recovery.adopted += 1;
                    recovery.rebuilt |= rebuilt;
                }
                Some(second) => missed.push(dismiss(second).await),
            }
        }
        for one in missed {
            recovery.lost.extend(self.strike_off(one).await);
        }
        let backends = self.backends.living();
        join_all(backends.iter().map(|backend| backend.settle())).await;
        recovery
    }

    /// What may be there, by either account, and the rows that nobody has to look for.
    async fn candidates(&self, rows: Vec<Row>) -> (Vec<Candidate>, Vec<Missed>) {
        let backends = self.backends.living();
        let found = join_all(backends.iter().map(|backend| backend.left_running())).await;
        let mut handles: BTreeMap<(String, String), BoxHandle> = found
            .into_iter()
            .flatten()
            .map(|handle| ((handle.backend.clone(), handle.name.clone()), handle))
            .collect();
        let named = |name: &str| backends.iter().find(|backend| backend.name() == name);
        let here = Lease::here();
        let (mut candidates, mut missed) = (Vec::new(), Vec::new());
        for row in rows {
            let handle = handles.remove(&(row.backend.clone(), row.name.clone()));
            let is_found = handle.is_some();
            let why = match named(&row.backend) {
                _ if !is_found && row.socket.as_os_str().is_empty() => WENT_ALONG.to_owned(),
                _ if !is_found && row.lease.boot != here.boot => OTHER_BOOT.to_owned(),
                Some(backend) => {
                    candidates.push(Candidate {
                        handle: handle.unwrap_or_else(|| handle_of(&row)),
                        row: Some(row),
                        backend: Arc::clone(backend),
                    });
                    continue;
                }
                None => format!("this daemon has no backend `{}`", row.backend),
            };
            missed.push(Missed {
                row: Some(row),
                why,
            });
        }
        for handle in handles.into_values() {
            if let Some(backend) = named(&handle.backend) {
                candidates.push(Candidate {
                    backend: Arc::clone(backend),
                    handle,
                    row: None,
                });
            }
        }
        (candidates, missed)
    }

    /// Gives the box its session back, unless that has one already.
    fn install(self: &Arc<Self>, taken: Taken) -> Option<Taken> {
        let mut slots = lock(&self.slots);
        if slots.contains_key(taken.restored.spec.session()) {
            return Some(taken);
        }
        let restored = taken.restored;
        let (incarnation, created_at) = (restored.incarnation, restored.created_at);
        let spec_text = serde_json::to_string(&restored.spec_record).unwrap_or_default();
        let parts = Parts {
            incarnation,
            spec: restored.spec,
            spec_record: restored.spec_record,
            mounts: restored.mounts,
            sandbox: taken.sandbox,
            backend: taken.backend,
            created_at,
            adopted_at: Some(Timestamp::now()),
        };
        let session = Arc::new(Session::new(
            parts,
            self.events.clone(),
            self.gate.budget.clone(),
        ));
        if let Err(error) = self.quotas.watch(&session) {
            // It is somebody's work, and was watched by the daemon before.
            tracing::error!(session = %session.id, %error, "nobody watches what a box writes");
        }
        let slot = Slot::Ready {
            session: Arc::clone(&session),
        };
        slots.insert(session.id.clone(), slot);
        drop(slots);
        match taken.row {
            Some(row) if row.incarnation == incarnation && row.session == session.id => {
                self.ledger.adopt(incarnation, Lease::here());
            }
            row => {
                // It has the box's name, and the box says otherwise.
                if let Some(wrong) = row {
                    self.ledger.forget(wrong.incarnation);
                }
                self.ledger.restore(Row {
                    incarnation,
                    session: session.id.clone(),
                    backend: taken.handle.backend,
                    name: taken.handle.name,
                    socket: taken.handle.socket,
                    spec: spec_text,
                    lease: Lease::here(),
                    state: State::Ready,
                    created_at,
                });
            }
        }
        processes::adopt(self, &session, taken.processes);
        tracing::info!(session = %session.id, incarnation, "a running box was taken over");
        tokio::spawn(watch_box(Arc::downgrade(self), session));
        None
    }

    async fn strike_off(&self, missed: Missed) -> Option<Lost> {
        let Missed {
            row: Some(row),
            why,
        } = missed
        else {
            // Nothing says whose it was, so there is nobody to tell.
            return None;
        };
        if row.state == State::Starting {
            self.ledger.forget(row.incarnation);
            return None;
        }
        tracing::warn!(session = %row.session, incarnation = row.incarnation, why, "a session is lost");
        self.ledger.end(&row.session, row.incarnation, &why).await;
        Some(Lost {
            session: row.session,
            incarnation: row.incarnation,
            why,
        })
    }
}

/// Takes one box over, or says why not. A backend that hangs or panics costs that one box.
async fn take(candidate: Candidate) -> Result<Taken, Failed> {
    let Candidate {
        handle,
        row,
        backend,
    } = candidate;
    let taking = AssertUnwindSafe(take_over(&*backend, &handle)).catch_unwind();
    let why = match timeout(LONGEST, taking).await {
        Ok(Ok(Ok((sandbox, restored, processes)))) => {
            return Ok(Taken {
                row,
                handle,
                backend,
                sandbox,
                restored,
                processes,
            });
        }
        Ok(Ok(Err(Refused::ForGood(why)))) => why,
        Ok(Err(_panic)) => "the backend panicked while it took its box over".to_owned(),
        Ok(Ok(Err(Refused::ForNow(why)))) => {
            tracing::warn!(name = handle.name, why, "a box could not be taken over yet");
            let candidate = Candidate {
                handle,
                row,
                backend,
            };
            return Err(Failed::ForNow(candidate, why));
        }
        Err(_elapsed) => NO_ANSWER.to_owned(),
    };
    tracing::info!(
        backend = handle.backend,
        name = handle.name,
        why,
        "a box is not taken over"
    );
    Err(Failed::ForGood(Missed { row, why }))
}

/// Why there is no taking over.
enum Refused {
    ForGood(String),
    ForNow(String),
}

async fn take_over(
    backend: &dyn Backend,
    handle: &BoxHandle,
) -> Result<(Arc<dyn Sandbox>, Restored, Vec<KeptProcess>), Refused> {
    let adopted = backend.adopt(handle).await.map_err(|error| match error {
        AdoptError::Gone => Refused::ForGood(DIED.to_owned()),
        AdoptError::Unfinished => Refused::ForGood(UNFINISHED.to_owned()),
        AdoptError::Unsupported => Refused::ForGood(WENT_ALONG.to_owned()),
        AdoptError::Step { step, source } => {
            Refused::ForNow(format!("its box could not be taken over: {step}: {source}"))
        }
    })?;
    let sandbox = adopted.sandbox;
    let record = adopted.record;
    // Opens paths, and one of them may be on a disk that is slow to answer.
    let restoring = tokio::task::spawn_blocking(move || Restored::from_bytes(&record));
    let restored = match restoring.await {
        Ok(Ok(restored)) => restored,
        Ok(Err(error)) => return Err(Refused::ForGood(refuse(&*sandbox, error.to_string()).await)),
        Err(_panic) => {
            let why = "its record cannot be read".to_owned();
            return Err(Refused::ForGood(refuse(&*sandbox, why).await));
        }
    };
    // The daemon before may have frozen it.
    if let Err(error) = sandbox.thaw().await {
        let why = format!("its box cannot be woken: {error}");
        return Err(Refused::ForGood(refuse(&*sandbox, why).await));
    }
    Ok((sandbox, restored, adopted.processes))
}

/// Nobody could ever ask for the box.
async fn refuse(sandbox: &dyn Sandbox, why: String) -> String {
    if let Err(error) = sandbox.stop().await {
        tracing::error!(name = sandbox.id(), %error, "a box was not removed cleanly");
    }
    why
}

/// The second box of a session.
async fn dismiss(taken: Taken) -> Missed {
    let why = "another box of the same session took its place".to_owned();
    Missed {
        row: taken.row,
        why: refuse(&*taken.sandbox, why).await,
    }
}

fn handle_of(row: &Row) -> BoxHandle {
    BoxHandle {
        backend: row.backend.clone(),
        name: row.name.clone(),
        socket: row.socket.clone(),
    }
}
