//! Adopts the boxes of an earlier daemon.
//!
//! Uses the ledger and what the backends find. A running box that knows its session is adopted even if
//! the ledger does not have it, and a row without a box becomes an ended session.

mod programs;
pub(crate) mod record;

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

use self::record::Restored;
use crate::quota;
use crate::session::activity::lock;
use crate::session::registry::Registry;
use crate::session::start::watch_box;
use crate::session::state::SessionState;
use crate::session::{Parts, Session};

/// Boxes that are adopted at the same time.
const AT_ONCE: usize = 16;

/// A box that does not answer within this time is not adopted.
const LONGEST: Duration = Duration::from_secs(15);

const DIED: &str = "its box died while no daemon ran";
const UNFINISHED: &str = "its box was not started completely";
const WENT_ALONG: &str = "its box ended with the daemon that made it";
const OTHER_BOOT: &str = "the machine was restarted";
const NO_ANSWER: &str = "its box did not answer when it was adopted";

/// The result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Number of adopted sessions.
    pub adopted: usize,
    pub lost: Vec<Lost>,
    /// Some of them were missing in the ledger and have been added.
    pub rebuilt: bool,
}

/// A session that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub session: SessionId,
    pub incarnation: u64,
    pub why: String,
}

/// A box that may exist.
struct Candidate {
    handle: BoxHandle,
    row: Option<Row>,
    backend: Arc<dyn Backend>,
}

/// A running box and its session.
struct Taken {
    candidate: Candidate,
    sandbox: Arc<dyn Sandbox>,
    restored: Restored,
    processes: Vec<KeptProcess>,
}

/// A box that was not adopted.
struct Refused {
    candidate: Candidate,
    why: String,
    /// Whether a second attempt may succeed: the host may have been too busy.
    again: bool,
}

impl Registry {
    /// To be called once, before requests are served.
    pub(crate) async fn recover(self: &Arc<Self>) -> Recovery {
        let rows = self.ledger.rows().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read the ledger; sessions are restored from running boxes");
            Vec::new()
        });
        let (candidates, mut lost) = self.candidates(rows).await;
        let outcomes: Vec<_> = stream::iter(candidates.into_iter().map(take))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut taken = Vec::new();
        for mut outcome in outcomes {
            if let Err(Refused {
                candidate,
                again: true,
                ..
            }) = outcome
            {
                outcome = take(candidate).await;
            }
            match outcome {
                Ok(one) => taken.push(one),
                Err(refused) => lost.extend(refused.candidate.row.map(|row| (row, refused.why))),
            }
        }
        // If two boxes belong to one session, callers know the later one.
        taken.sort_by_key(|taken| std::cmp::Reverse(taken.restored.incarnation));
        let mut recovery = Recovery::default();
        for one in taken {
            let rebuilt = one.candidate.row.is_none();
            match self.install(one) {
                None => {
                    recovery.adopted += 1;
                    recovery.rebuilt |= rebuilt;
                }
                Some(second) => {
                    remove(&*second.sandbox).await;
                    let why = "another box of the same session replaced it".to_owned();
                    lost.extend(second.candidate.row.map(|row| (row, why)));
                }
            }
        }
        for (row, why) in lost {
            recovery.lost.extend(self.strike_off(row, why).await);
        }
        let backends = self.backends.living();
        join_all(backends.iter().map(|backend| backend.finish_adoption())).await;
        recovery
    }

    /// Boxes that may exist according to ledger or backends, and rows without a box.
    async fn candidates(&self, rows: Vec<Row>) -> (Vec<Candidate>, Vec<(Row, String)>) {
        let backends = self.backends.living();
        let found = join_all(backends.iter().map(|backend| backend.left_running())).await;
        let mut handles: BTreeMap<(String, String), BoxHandle> = found
            .into_iter()
            .flatten()
            .map(|handle| ((handle.backend.clone(), handle.name.clone()), handle))
            .collect();
        let named = |name: &str| backends.iter().find(|backend| backend.name() == name);
        let here = Lease::here();
        let (mut candidates, mut lost) = (Vec::new(), Vec::new());
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
            lost.push((row, why));
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
        (candidates, lost)
    }

    /// Creates the session of the box, unless it exists already.
    fn install(self: &Arc<Self>, taken: Taken) -> Option<Taken> {
        let mut slots = lock(&self.slots);
        if slots.contains_key(taken.restored.spec.session()) {
            return Some(taken);
        }
        let Taken {
            candidate,
            sandbox,
            restored,
            processes,
        } = taken;
        let (incarnation, created_at) = (restored.incarnation, restored.created_at);
        let spec_text = serde_json::to_string(&restored.spec_record).unwrap_or_default();
        let parts = Parts {
            incarnation,
            spec: restored.spec,
            spec_record: restored.spec_record,
            mounts: restored.mounts,
            sandbox,
            backend: candidate.backend,
            created_at,
            adopted_at: Some(Timestamp::now()),
        };
        let session = Arc::new(Session::new(
            parts,
            self.events.clone(),
            self.gate.budget.clone(),
        ));
        if let Err(error) = quota::watch(&session, &self.settings) {
            // The session is kept, because removing the box would lose the work in it.
            tracing::error!(session = %session.id, %error, "failed to watch the quota of an adopted box");
        }
        let slot = SessionState::Ready {
            session: Arc::clone(&session),
        };
        slots.insert(session.id.clone(), slot);
        drop(slots);
        match candidate.row {
            Some(row) if row.incarnation == incarnation && row.session == session.id => {
                self.ledger.adopt(incarnation, Lease::here());
            }
            row => {
                // The name belongs to another session according to the box.
                if let Some(wrong) = row {
                    self.ledger.forget(wrong.incarnation);
                }
                self.ledger.restore(Row {
                    incarnation,
                    session: session.id.clone(),
                    backend: candidate.handle.backend,
                    name: candidate.handle.name,
                    socket: candidate.handle.socket,
                    spec: spec_text,
                    lease: Lease::here(),
                    state: State::Ready,
                    created_at,
                });
            }
        }
        programs::adopt(self, &session, processes);
        tracing::info!(session = %session.id, incarnation, "adopted a running box");
        tokio::spawn(watch_box(Arc::downgrade(self), session));
        None
    }

    async fn strike_off(&self, row: Row, why: String) -> Option<Lost> {
        if row.state == State::Starting {
            self.ledger.forget(row.incarnation);
            return None;
        }
        tracing::warn!(session = %row.session, incarnation = row.incarnation, why, "a session of an earlier daemon is lost");
        self.ledger.end(&row.session, row.incarnation, &why).await;
        Some(Lost {
            session: row.session,
            incarnation: row.incarnation,
            why,
        })
    }
}

/// Adopts one box. A backend that hangs or panics costs this box only.
async fn take(candidate: Candidate) -> Result<Taken, Refused> {
    let taking = take_over(&*candidate.backend, &candidate.handle);
    let outcome = timeout(LONGEST, AssertUnwindSafe(taking).catch_unwind()).await;
    let (why, again) = match outcome {
        Ok(Ok(Ok((sandbox, restored, processes)))) => {
            return Ok(Taken {
                candidate,
                sandbox,
                restored,
                processes,
            });
        }
        Ok(Ok(Err(refused))) => refused,
        Ok(Err(_panic)) => (
            "the backend panicked while adopting its box".to_owned(),
            false,
        ),
        Err(_elapsed) => (NO_ANSWER.to_owned(), false),
    };
    let BoxHandle { backend, name, .. } = &candidate.handle;
    tracing::info!(backend, name, why, again, "a box was not adopted");
    Err(Refused {
        candidate,
        why,
        again,
    })
}

/// The error is the reason, and whether a second attempt may succeed.
async fn take_over(
    backend: &dyn Backend,
    handle: &BoxHandle,
) -> Result<(Arc<dyn Sandbox>, Restored, Vec<KeptProcess>), (String, bool)> {
    let adopted = backend.adopt(handle).await.map_err(|error| match error {
        AdoptError::Gone => (DIED.to_owned(), false),
        AdoptError::Unfinished => (UNFINISHED.to_owned(), false),
        AdoptError::Unsupported => (WENT_ALONG.to_owned(), false),
        AdoptError::Step { step, source } => (
            format!("its box could not be adopted: {step}: {source}"),
            true,
        ),
    })?;
    let (sandbox, record) = (adopted.sandbox, adopted.record);
    // Opens paths, which may be on a slow disk.
    let restoring = tokio::task::spawn_blocking(move || Restored::from_bytes(&record));
    let why = match restoring.await {
        // The earlier daemon may have frozen it.
        Ok(Ok(restored)) => match sandbox.thaw().await {
            Ok(()) => return Ok((sandbox, restored, adopted.processes)),
            Err(error) => format!("its box cannot be woken: {error}"),
        },
        Ok(Err(error)) => error.to_string(),
        Err(_panic) => "its record cannot be read".to_owned(),
    };
    remove(&*sandbox).await;
    Err((why, false))
}

/// Removes a box that no caller can access.
async fn remove(sandbox: &dyn Sandbox) {
    if let Err(error) = sandbox.stop().await {
        tracing::error!(name = sandbox.id(), %error, "failed to remove a box that is not adopted");
    }
}

fn handle_of(row: &Row) -> BoxHandle {
    BoxHandle {
        backend: row.backend.clone(),
        name: row.name.clone(),
        socket: row.socket.clone(),
    }
}
