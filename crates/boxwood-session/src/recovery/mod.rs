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

use boxwood_api::{SessionId, with_causes};
use boxwood_backend::{AdoptError, Backend, BoxHandle, KeptProcess, Sandbox};
use boxwood_ledger::{Row, State, current_boot};
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
const MAX_CONCURRENT_ADOPTIONS: usize = 16;

/// A box that does not answer within this time is not adopted.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(15);

const DIED: &str = "its box died while no daemon ran";
const UNFINISHED: &str = "its box was not started completely";
const ENDED_WITH_DAEMON: &str = "its box ended with the daemon that created it";
const OTHER_BOOT: &str = "the machine was restarted";
const NO_ANSWER: &str = "its box did not answer when it was adopted";

/// The result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Number of adopted sessions.
    pub adopted: usize,
    pub lost: Vec<Lost>,
    /// Some adopted sessions were missing in the ledger and have been added.
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

/// A running box, its session and its programs.
struct AdoptedBox {
    sandbox: Arc<dyn Sandbox>,
    restored: Restored,
    processes: Vec<KeptProcess>,
}

/// Why a box was not adopted.
struct Refusal {
    why: String,
    /// Whether a second attempt may succeed: the host may have been too busy.
    retry: bool,
}

impl Refusal {
    fn permanent(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            retry: false,
        }
    }
}

impl Registry {
    /// To be called once, before requests are served.
    pub(crate) async fn recover(self: &Arc<Self>) -> Recovery {
        let rows = self.ledger.rows().await.unwrap_or_else(|error| {
            tracing::warn!(error = %with_causes(&error), "failed to read the ledger; sessions are restored from running boxes");
            Vec::new()
        });
        let (candidates, mut lost) = self.candidates(rows).await;
        let attempts = candidates.into_iter().map(async |candidate| {
            let outcome = adopt_guarded(&candidate).await;
            (candidate, outcome)
        });
        let outcomes: Vec<_> = stream::iter(attempts)
            .buffer_unordered(MAX_CONCURRENT_ADOPTIONS)
            .collect()
            .await;
        let mut adopted_boxes = Vec::new();
        for (candidate, mut outcome) in outcomes {
            if matches!(outcome, Err(Refusal { retry: true, .. })) {
                outcome = adopt_guarded(&candidate).await;
            }
            match outcome {
                Ok(adopted) => adopted_boxes.push((candidate, adopted)),
                Err(refusal) => lost.extend(candidate.row.map(|row| (row, refusal.why))),
            }
        }
        // If two boxes belong to one session, callers know the later one.
        adopted_boxes.sort_by_key(|(_, adopted)| std::cmp::Reverse(adopted.restored.incarnation));
        let mut recovery = Recovery::default();
        for (candidate, adopted) in adopted_boxes {
            if lock(&self.slots).contains_key(adopted.restored.spec.session()) {
                remove(&*adopted.sandbox).await;
                let why = "another box of the same session replaced it".to_owned();
                lost.extend(candidate.row.map(|row| (row, why)));
                continue;
            }
            recovery.adopted += 1;
            recovery.rebuilt |= candidate.row.is_none();
            self.install(candidate, adopted);
        }
        for (row, why) in lost {
            recovery.lost.extend(self.record_lost(row, why).await);
        }
        let backends = self.backends.initialised();
        join_all(backends.iter().map(|backend| backend.finish_adoption())).await;
        recovery
    }

    /// Boxes that may exist according to ledger or backends, and rows without a box.
    async fn candidates(&self, rows: Vec<Row>) -> (Vec<Candidate>, Vec<(Row, String)>) {
        let backends = self.backends.initialised();
        let found = join_all(backends.iter().map(|backend| backend.left_running())).await;
        let mut handles: BTreeMap<(String, String), BoxHandle> = found
            .into_iter()
            .flatten()
            .map(|handle| ((handle.backend.clone(), handle.name.clone()), handle))
            .collect();
        let named = |name: &str| backends.iter().find(|backend| backend.name() == name);
        let (mut candidates, mut lost) = (Vec::new(), Vec::new());
        for row in rows {
            let handle = handles.remove(&(row.backend.clone(), row.name.clone()));
            let is_found = handle.is_some();
            let why = match named(&row.backend) {
                _ if !is_found && row.socket.as_os_str().is_empty() => ENDED_WITH_DAEMON.to_owned(),
                _ if !is_found && row.boot != current_boot() => OTHER_BOOT.to_owned(),
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

    /// Creates the session of the box.
    fn install(self: &Arc<Self>, candidate: Candidate, adopted: AdoptedBox) {
        let AdoptedBox {
            sandbox,
            restored,
            processes,
        } = adopted;
        let (incarnation, created_at) = (restored.incarnation, restored.created_at);
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
        let session = Arc::new(Session::new(parts, self));
        if let Err(error) = quota::watch(&session, &self.settings) {
            // The session is kept, because removing the box would lose the work in it.
            tracing::error!(session = %session.id, %error, "failed to watch the quota of an adopted box");
        }
        let slot = SessionState::Ready {
            session: Arc::clone(&session),
        };
        lock(&self.slots).insert(session.id.clone(), slot);
        // The record that init keeps may have another incarnation than the row.
        if let Some(row) = candidate.row
            && row.incarnation != incarnation
        {
            self.ledger.forget(row.incarnation);
        }
        self.ledger.restore(Row {
            incarnation,
            session: session.id.clone(),
            backend: candidate.handle.backend,
            name: candidate.handle.name,
            socket: candidate.handle.socket,
            boot: current_boot().to_owned(),
            state: State::Ready,
            created_at,
        });
        programs::adopt(self, &session, processes);
        tracing::info!(session = %session.id, incarnation, "adopted a running box");
        tokio::spawn(watch_box(Arc::downgrade(self), session));
    }

    async fn record_lost(&self, row: Row, why: String) -> Option<Lost> {
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

/// Adopts one box. A backend that hangs or panics affects this box only.
async fn adopt_guarded(candidate: &Candidate) -> Result<AdoptedBox, Refusal> {
    let handle = &candidate.handle;
    let adopting = AssertUnwindSafe(adopt(&*candidate.backend, handle)).catch_unwind();
    let refusal = match timeout(ADOPT_TIMEOUT, adopting).await {
        Ok(Ok(Ok(adopted))) => return Ok(adopted),
        Ok(Ok(Err(refusal))) => refusal,
        Ok(Err(_panic)) => Refusal::permanent("the backend panicked while adopting its box"),
        Err(_elapsed) => Refusal::permanent(NO_ANSWER),
    };
    let BoxHandle { backend, name, .. } = handle;
    tracing::info!(
        backend,
        name,
        why = refusal.why,
        retry = refusal.retry,
        "a box was not adopted"
    );
    Err(refusal)
}

async fn adopt(backend: &dyn Backend, handle: &BoxHandle) -> Result<AdoptedBox, Refusal> {
    let adopted = backend.adopt(handle).await.map_err(|error| match error {
        AdoptError::Gone => Refusal::permanent(DIED),
        AdoptError::Unfinished => Refusal::permanent(UNFINISHED),
        AdoptError::Unsupported => Refusal::permanent(ENDED_WITH_DAEMON),
        AdoptError::Step { step, source } => Refusal {
            why: format!("its box could not be adopted: {step}: {source}"),
            retry: true,
        },
    })?;
    let (sandbox, record) = (adopted.sandbox, adopted.record);
    // Opens paths, which may be on a slow disk.
    let restoring = tokio::task::spawn_blocking(move || Restored::from_bytes(&record));
    let why = match restoring.await {
        // The earlier daemon may have frozen it.
        Ok(Ok(restored)) => match sandbox.thaw().await {
            Ok(()) => {
                return Ok(AdoptedBox {
                    sandbox,
                    restored,
                    processes: adopted.processes,
                });
            }
            Err(error) => format!("its box cannot be thawed: {}", with_causes(&error)),
        },
        Ok(Err(error)) => format!("its record cannot be read: {}", with_causes(&*error)),
        Err(_panic) => "its record cannot be read".to_owned(),
    };
    remove(&*sandbox).await;
    Err(Refusal::permanent(why))
}

/// Removes a box that no caller can access.
async fn remove(sandbox: &dyn Sandbox) {
    if let Err(error) = sandbox.stop().await {
        tracing::error!(name = sandbox.id(), error = %with_causes(&error), "failed to remove a box that is not adopted");
    }
}

fn handle_of(row: &Row) -> BoxHandle {
    BoxHandle {
        backend: row.backend.clone(),
        name: row.name.clone(),
        socket: row.socket.clone(),
    }
}
