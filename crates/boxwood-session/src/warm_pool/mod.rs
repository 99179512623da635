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

use boxwood_api::with_causes;
use boxwood_backend::{BoxHandle, Progress, StartRecorder, start_step};
use boxwood_policy::AdmittedSpec;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backends::{Backends, StartedBox};
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
    prewarming: tokio::sync::Mutex<()>,
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
    started_box: StartedBox,
    /// What was recorded at its start; `None` if boxes end with the daemon.
    handle: Option<BoxHandle>,
    images: Images,
    /// A task that wakes the keeper if the box dies. Dropping this aborts it.
    _watch: JoinSet<()>,
}

impl PrewarmedBox {
    /// Returns true if a new box would be the same: it is running, on the right backend, and its image
    /// has not changed.
    fn is_current(&self, spec: &AdmittedSpec, backends: &Backends) -> bool {
        let backend = backends.current_of(spec);
        self.started_box.sandbox.is_alive()
            && backend.is_some_and(|backend| backend.name() == self.started_box.backend.name())
            && self.images.root_is_the_same(spec)
    }
}

impl Registry {
    /// Returns the box for a session of this spec: a prewarmed one, or else a new one.
    pub(crate) async fn box_for(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        recorder: &StartRecorder,
    ) -> Result<StartedBox> {
        if let Some(started_box) = self.warm.take(spec, &self.backends, recorder).await? {
            return Ok(started_box);
        }
        self.warm.make_room(keeper::room(self));
        self.backends.start(spec, progress, recorder).await
    }
}

impl Warm {
    /// Replaces the kinds of boxes to prewarm. Other boxes are removed.
    pub(crate) fn set_specs(&self, specs: Vec<WarmPoolSpec>) {
        let mut pools = lock(&self.pools);
        let mut old_pools = std::mem::take(&mut *pools);
        for pool_spec in specs {
            if pool_spec.most == 0 || !pool_spec.spec.can_be_prewarmed() {
                continue;
            }
            let same =
                old_pools.extract_if(.., |pool| pool.spec.creates_same_box_as(&pool_spec.spec));
            let boxes = same.flat_map(|pool| pool.boxes).collect();
            pools.push(ProfilePool {
                spec: Arc::new(pool_spec.spec),
                demand: Demand::new(pool_spec.most),
                boxes,
                not_before: None,
            });
        }
        drop(pools);
        discard(old_pools.into_iter().flat_map(|pool| pool.boxes));
        self.changed.notify_one();
    }

    /// Takes a prewarmed box that fits `spec`. It is recorded in the ledger now; if that fails, the box
    /// stays prewarmed.
    pub(crate) async fn take(
        &self,
        spec: &AdmittedSpec,
        backends: &Backends,
        recorder: &StartRecorder,
    ) -> Result<Option<StartedBox>> {
        let Some(prewarmed) = self.pop(spec, backends) else {
            return Ok(None);
        };
        if let Some(handle) = &prewarmed.handle
            && let Err(source) = recorder.record(handle.clone()).await
        {
            self.put_back(spec, prewarmed);
            return Err(SessionError::start(start_step(
                "recording it in the ledger",
            )(source)));
        }
        let spec = Arc::new(spec.on_backend(prewarmed.started_box.backend.name()));
        Ok(Some(StartedBox {
            spec,
            ..prewarmed.started_box
        }))
    }

    fn pop(&self, spec: &AdmittedSpec, backends: &Backends) -> Option<PrewarmedBox> {
        let mut pools = lock(&self.pools);
        let pool = pools
            .iter_mut()
            .find(|pool| pool.spec.creates_same_box_as(spec))?;
        let mut outdated = Vec::new();
        let taken = loop {
            match pool.boxes.pop() {
                Some(prewarmed) if prewarmed.is_current(spec, backends) => break Some(prewarmed),
                Some(prewarmed) => outdated.push(prewarmed),
                None => break None,
            }
        };
        pool.demand.record_request(Instant::now(), taken.is_some());
        drop(pools);
        discard(outdated);
        self.changed.notify_one();
        taken
    }

    fn put_back(&self, spec: &AdmittedSpec, prewarmed: PrewarmedBox) {
        let mut pools = lock(&self.pools);
        match pools
            .iter_mut()
            .find(|pool| pool.spec.creates_same_box_as(spec))
        {
            Some(pool) if !self.is_closed() => pool.boxes.push(prewarmed),
            Some(_) | None => {
                drop(pools);
                discard([prewarmed]);
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
        let mut to_stop = Vec::new();
        for pool in &mut *lock(&self.pools) {
            let removed = pool.remove(|prewarmed| prewarmed.started_box.backend.name() == backend);
            if !removed.is_empty() {
                // A change of images has priority.
                pool.not_before = Some(Instant::now() + AFTER_CHANGE);
            }
            to_stop.extend(removed);
        }
        stop_all(to_stop).await;
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
        let _started = self.prewarming.lock().await;
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
    let stops = boxes.into_iter().map(|prewarmed| async move {
        let sandbox = &prewarmed.started_box.sandbox;
        if let Err(error) = sandbox.stop().await {
            tracing::warn!(error = %with_causes(&error), name = sandbox.id(), "failed to remove a prewarmed box");
        }
    });
    join_all(stops).await;
}
