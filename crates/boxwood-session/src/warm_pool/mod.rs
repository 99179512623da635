//! Prewarmed boxes.
//!
//! A box is used only for a request that asks for exactly the same. A prewarmed box has no name, no
//! record and no session, so the daemon after a crash removes it.

mod demand;
mod images;
mod keeper;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_backend::{BoxHandle, Progress, StartRecorder, start_step};
use boxwood_policy::AdmittedSpec;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backends::{Backends, Begun};
use crate::session::activity::lock;
use crate::session::registry::Registry;
use crate::{Result, SessionError};
use demand::Demand;
use images::Images;
pub(crate) use keeper::keep;

/// No boxes are prewarmed for this long after a change of images.
const AFTER_CHANGE: Duration = Duration::from_secs(5);

/// What to prewarm for one profile.
#[derive(Clone, Debug)]
pub struct WarmPoolSpec {
    /// The spec of a request without fields. Its session id is not used.
    pub spec: AdmittedSpec,
    /// Maximum number.
    pub most: usize,
}

#[derive(Default)]
pub(crate) struct Warm {
    pools: Mutex<Vec<ProfilePool>>,
    /// Wakes the keeper.
    changed: Arc<Notify>,
    /// Locked while a box is being started, so that a shutdown can wait for it.
    making: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    /// Number of image changes. Boxes whose start began before a change are removed.
    changes: AtomicU64,
    has_keeper: AtomicBool,
}

/// The prewarmed boxes of one profile.
struct ProfilePool {
    spec: Arc<AdmittedSpec>,
    demand: Demand,
    boxes: Vec<PrewarmedBox>,
    /// After a failed start, no start is tried before this time.
    not_before: Option<Instant>,
}

impl ProfilePool {
    fn remove(&mut self, is_unwanted: impl FnMut(&mut PrewarmedBox) -> bool) -> Vec<PrewarmedBox> {
        self.boxes.extract_if(.., is_unwanted).collect()
    }
}

/// One prewarmed box.
struct PrewarmedBox {
    begun: Begun,
    /// What was recorded at its start; `None` if boxes end with the daemon.
    handle: Option<BoxHandle>,
    images: Images,
    /// A task that wakes the keeper if the box dies. Dropping this aborts it.
    _watch: JoinSet<()>,
}

impl PrewarmedBox {
    /// Returns true if a new box would be the same: it is running, on the right backend, and its image
    /// has not changed.
    fn is_current(&self, wanted: &AdmittedSpec, backends: &Backends) -> bool {
        let today = backends.current_of(wanted);
        self.begun.sandbox.is_alive()
            && today.is_some_and(|today| today.name() == self.begun.backend.name())
            && self.images.root_is_the_same(wanted)
    }
}

impl Registry {
    /// Returns the box for a session of this spec: a prewarmed one, or else a new one.
    pub(crate) async fn box_for(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        recorder: &StartRecorder,
    ) -> Result<Begun> {
        if let Some(begun) = self.warm.take(spec, &self.backends, recorder).await? {
            return Ok(begun);
        }
        self.warm.make_room(keeper::room(self));
        self.backends.start(spec, progress, recorder).await
    }
}

impl Warm {
    /// Replaces the kinds of boxes to prewarm. Other boxes are removed.
    pub(crate) fn want(&self, specs: Vec<WarmPoolSpec>) {
        let mut pools = lock(&self.pools);
        let mut before = std::mem::take(&mut *pools);
        for wanted in specs {
            if wanted.most == 0 || !wanted.spec.can_be_prewarmed() {
                continue;
            }
            let same = before.extract_if(.., |pool| pool.spec.is_twin_of(&wanted.spec));
            let boxes = same.flat_map(|pool| pool.boxes).collect();
            pools.push(ProfilePool {
                spec: Arc::new(wanted.spec),
                demand: Demand::new(wanted.most),
                boxes,
                not_before: None,
            });
        }
        drop(pools);
        discard(before.into_iter().flat_map(|pool| pool.boxes));
        self.changed.notify_one();
    }

    /// Takes a prewarmed box that fits `spec`. It is recorded in the ledger now; if that fails, the box
    /// stays prewarmed.
    pub(crate) async fn take(
        &self,
        spec: &AdmittedSpec,
        backends: &Backends,
        recorder: &StartRecorder,
    ) -> Result<Option<Begun>> {
        let Some(waiting) = self.pop(spec, backends) else {
            return Ok(None);
        };
        if let Some(handle) = &waiting.handle
            && let Err(source) = recorder.record(handle.clone()).await
        {
            self.put_back(spec, waiting);
            return Err(SessionError::start(start_step(
                "recording it in the ledger",
            )(source)));
        }
        let spec = Arc::new(spec.on_backend(waiting.begun.backend.name()));
        Ok(Some(Begun {
            spec,
            ..waiting.begun
        }))
    }

    fn pop(&self, spec: &AdmittedSpec, backends: &Backends) -> Option<PrewarmedBox> {
        let mut pools = lock(&self.pools);
        let pool = pools.iter_mut().find(|pool| pool.spec.is_twin_of(spec))?;
        let mut outdated = Vec::new();
        let found = loop {
            match pool.boxes.pop() {
                Some(waiting) if waiting.is_current(spec, backends) => break Some(waiting),
                Some(waiting) => outdated.push(waiting),
                None => break None,
            }
        };
        pool.demand.asked(Instant::now(), found.is_some());
        drop(pools);
        discard(outdated);
        self.changed.notify_one();
        found
    }

    fn put_back(&self, spec: &AdmittedSpec, waiting: PrewarmedBox) {
        let mut pools = lock(&self.pools);
        match pools.iter_mut().find(|pool| pool.spec.is_twin_of(spec)) {
            Some(pool) if !self.is_closed() => pool.boxes.push(waiting),
            Some(_) | None => {
                drop(pools);
                discard([waiting]);
            }
        }
    }

    /// Sessions have priority: removes as many prewarmed boxes as necessary to have at most `room`.
    pub(crate) fn make_room(&self, room: usize) {
        let mut pools = lock(&self.pools);
        let mut surplus = Vec::new();
        while count(&pools) > room {
            let fullest = pools.iter_mut().max_by_key(|pool| pool.boxes.len());
            surplus.extend(fullest.and_then(|pool| pool.boxes.pop()));
        }
        drop(pools);
        discard(surplus);
    }

    /// Removes boxes of the backend, because its images are about to change.
    pub(crate) async fn forget(&self, backend: &str) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut going = Vec::new();
        for pool in &mut *lock(&self.pools) {
            let theirs = pool.remove(|waiting| waiting.begun.backend.name() == backend);
            if !theirs.is_empty() {
                // A change of images has priority.
                pool.not_before = Some(Instant::now() + AFTER_CHANGE);
            }
            going.extend(theirs);
        }
        stop_all(going).await;
        self.changed.notify_one();
    }

    /// Number of prewarmed boxes.
    pub(crate) fn count(&self) -> usize {
        count(&lock(&self.pools))
    }

    /// Removes all prewarmed boxes. No more are started.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
        // A start in progress sees this mark when it is done.
        let _started = self.making.lock().await;
        let pools = std::mem::take(&mut *lock(&self.pools));
        stop_all(pools.into_iter().flat_map(|pool| pool.boxes)).await;
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns true to the first caller only.
    pub(crate) fn needs_keeper(&self) -> bool {
        !self.has_keeper.swap(true, Ordering::AcqRel)
    }
}

fn count(pools: &[ProfilePool]) -> usize {
    pools.iter().map(|pool| pool.boxes.len()).sum()
}

/// In a task, so that the caller does not wait.
fn discard(boxes: impl IntoIterator<Item = PrewarmedBox>) {
    let boxes: Vec<_> = boxes.into_iter().collect();
    if !boxes.is_empty() {
        tokio::spawn(stop_all(boxes));
    }
}

async fn stop_all(boxes: impl IntoIterator<Item = PrewarmedBox>) {
    let stops = boxes.into_iter().map(|waiting| async move {
        let sandbox = &waiting.begun.sandbox;
        if let Err(error) = sandbox.stop().await {
            tracing::warn!(%error, name = sandbox.id(), "failed to remove a prewarmed box");
        }
    });
    join_all(stops).await;
}
