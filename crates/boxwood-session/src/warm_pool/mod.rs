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
    shelves: Mutex<Vec<Shelf>>,
    /// Wakes the keeper.
    changed: Arc<Notify>,
    /// Locked while a box is being started, so that a shutdown can wait for it.
    making: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    /// Number of image changes. Boxes whose start began before a change are removed.
    changes: AtomicU64,
    kept: AtomicBool,
}

/// The prewarmed boxes of one profile.
struct Shelf {
    spec: Arc<AdmittedSpec>,
    demand: Demand,
    boxes: Vec<Waiting>,
    /// After a failed start, no start is tried before this time.
    not_before: Option<Instant>,
}

impl Shelf {
    fn remove(&mut self, is_unwanted: impl FnMut(&mut Waiting) -> bool) -> Vec<Waiting> {
        self.boxes.extract_if(.., is_unwanted).collect()
    }
}

/// One prewarmed box.
struct Waiting {
    begun: Begun,
    /// What the witness was told at its start; `None` if boxes end with the daemon.
    handle: Option<BoxHandle>,
    images: Images,
    /// A task that wakes the keeper if the box dies. Dropping this aborts it.
    _watch: JoinSet<()>,
}

impl Waiting {
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
        witness: &StartRecorder,
    ) -> Result<Begun> {
        if let Some(begun) = self.warm.take(spec, &self.backends, witness).await? {
            return Ok(begun);
        }
        self.warm.make_room(keeper::room(self));
        self.backends.start(spec, progress, witness).await
    }
}

impl Warm {
    /// Replaces the kinds of boxes to prewarm. Other boxes are removed.
    pub(crate) fn want(&self, specs: Vec<WarmPoolSpec>) {
        let mut shelves = lock(&self.shelves);
        let mut before = std::mem::take(&mut *shelves);
        for wanted in specs {
            if wanted.most == 0 || !wanted.spec.can_be_made_ahead() {
                continue;
            }
            let same = |shelf: &Shelf| shelf.spec.is_twin_of(&wanted.spec);
            let boxes = match before.iter().position(same) {
                Some(at) => before.swap_remove(at).boxes,
                None => Vec::new(),
            };
            shelves.push(Shelf {
                spec: Arc::new(wanted.spec),
                demand: Demand::new(wanted.most),
                boxes,
                not_before: None,
            });
        }
        drop(shelves);
        discard(before.into_iter().flat_map(|shelf| shelf.boxes));
        self.changed.notify_one();
    }

    /// Takes a prewarmed box that fits `spec`. It is recorded in the ledger now; if that fails, the box
    /// stays prewarmed.
    pub(crate) async fn take(
        &self,
        spec: &AdmittedSpec,
        backends: &Backends,
        witness: &StartRecorder,
    ) -> Result<Option<Begun>> {
        let Some(waiting) = self.pop(spec, backends) else {
            return Ok(None);
        };
        if let Some(handle) = &waiting.handle
            && let Err(source) = witness.record(handle.clone()).await
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

    fn pop(&self, spec: &AdmittedSpec, backends: &Backends) -> Option<Waiting> {
        let mut shelves = lock(&self.shelves);
        let shelf = shelves
            .iter_mut()
            .find(|shelf| shelf.spec.is_twin_of(spec))?;
        let mut outdated = Vec::new();
        let found = loop {
            match shelf.boxes.pop() {
                Some(waiting) if waiting.is_current(spec, backends) => break Some(waiting),
                Some(waiting) => outdated.push(waiting),
                None => break None,
            }
        };
        shelf.demand.asked(Instant::now(), found.is_some());
        drop(shelves);
        discard(outdated);
        self.changed.notify_one();
        found
    }

    fn put_back(&self, spec: &AdmittedSpec, waiting: Waiting) {
        let mut shelves = lock(&self.shelves);
        let shelf = shelves.iter_mut().find(|shelf| shelf.spec.is_twin_of(spec));
        match shelf {
            Some(shelf) if !self.is_closed() => shelf.boxes.push(waiting),
            Some(_) | None => {
                drop(shelves);
                discard([waiting]);
            }
        }
    }

    /// Sessions have priority: removes as many prewarmed boxes as necessary to have at most `room`.
    pub(crate) fn make_room(&self, room: usize) {
        let mut shelves = lock(&self.shelves);
        let mut surplus = Vec::new();
        while count(&shelves) > room {
            let fullest = shelves.iter_mut().max_by_key(|shelf| shelf.boxes.len());
            surplus.extend(fullest.and_then(|shelf| shelf.boxes.pop()));
        }
        drop(shelves);
        discard(surplus);
    }

    /// Removes boxes of the backend, because its images are about to change.
    pub(crate) async fn forget(&self, backend: &str) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut going = Vec::new();
        for shelf in &mut *lock(&self.shelves) {
            let theirs = shelf.remove(|waiting| waiting.begun.backend.name() == backend);
            if !theirs.is_empty() {
                // A change of images has priority.
                shelf.not_before = Some(Instant::now() + AFTER_CHANGE);
            }
            going.extend(theirs);
        }
        stop_all(going).await;
        self.changed.notify_one();
    }

    /// Number of prewarmed boxes.
    pub(crate) fn count(&self) -> usize {
        count(&lock(&self.shelves))
    }

    /// Removes all prewarmed boxes. No more are started.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
        // A start in progress sees this mark when it is done.
        let _nobody = self.making.lock().await;
        let shelves = std::mem::take(&mut *lock(&self.shelves));
        stop_all(shelves.into_iter().flat_map(|shelf| shelf.boxes)).await;
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns true to the first caller only.
    pub(crate) fn needs_keeper(&self) -> bool {
        !self.kept.swap(true, Ordering::AcqRel)
    }
}

fn count(shelves: &[Shelf]) -> usize {
    shelves.iter().map(|shelf| shelf.boxes.len()).sum()
}

/// In a task, so that the caller does not wait.
fn discard(boxes: impl IntoIterator<Item = Waiting>) {
    let boxes: Vec<_> = boxes.into_iter().collect();
    if !boxes.is_empty() {
        tokio::spawn(stop_all(boxes));
    }
}

async fn stop_all(boxes: impl IntoIterator<Item = Waiting>) {
    let stops = boxes.into_iter().map(|waiting| async move {
        let sandbox = &waiting.begun.sandbox;
        if let Err(error) = sandbox.stop().await {
            tracing::warn!(%error, name = sandbox.id(), "failed to remove a prewarmed box");
        }
    });
    join_all(stops).await;
}
