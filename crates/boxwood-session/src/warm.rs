//! Boxes that are made before anybody asks for them.
//!
//! Comes in: which profiles want them, and requests for boxes. Goes out: a box that is exactly the
//! one asked for, or nothing. Never here: a box that is nearly the same, and sessions: a box that
//! waits has no name, no record and no owner, so that whoever follows a killed daemon removes it.

mod demand;
mod images;
mod keeper;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_backend::{BoxHandle, Progress, StartError, Witness};
use boxwood_policy::AdmittedSpec;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::SessionError;
use crate::activity::lock;
use crate::backends::{Backends, Begun};
use crate::registry::Registry;
use demand::Demand;
use images::Images;
pub(crate) use keeper::keep;

/// Nothing is made ahead for this long after images were meddled with.
const AFTER_CHANGE: Duration = Duration::from_secs(5);

/// What is to be kept ready for one profile.
#[derive(Clone, Debug)]
pub struct WarmWish {
    /// What the profile comes to when a caller names nothing else. Its session's name is nobody's.
    pub spec: AdmittedSpec,
    /// Never more than these.
    pub most: usize,
}

#[derive(Default)]
pub(crate) struct Warm {
    shelves: Mutex<Vec<Shelf>>,
    /// Something changed that the keeper may have to act on.
    changed: Arc<Notify>,
    /// Held while a box is being made, so that the end can wait for it.
    making: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    /// How often images were changed: what was begun before such a change is not kept.
    changes: AtomicU64,
    kept: AtomicBool,
}

/// The boxes of one profile.
struct Shelf {
    spec: Arc<AdmittedSpec>,
    demand: Demand,
    boxes: Vec<Waiting>,
    /// A start failed not long ago; none is tried before.
    not_before: Option<Instant>,
}

/// One box that waits.
struct Waiting {
    begun: Begun,
    /// What a witness was told when it was made; `None` where boxes end with the daemon.
    handle: Option<BoxHandle>,
    images: Images,
    _watch: Watch,
}

/// Sees to it that the keeper hears of its end, for as long as it waits.
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Waiting {
    /// Whether a box made now would be the same: it lives, it is where boxes of this kind go, and
    /// what it was made from is what its name means.
    fn is_current(&self, wanted: &AdmittedSpec, backends: &Backends) -> bool {
        let today = backends.current_of(wanted);
        self.begun.sandbox.is_alive()
            && today.is_some_and(|today| today.name() == self.begun.backend.name())
            && self.images.root_is_the_same(wanted)
    }
}

impl Registry {
    /// The box that a session of this spec gets: one that waits for it, else a new one.
    pub(crate) async fn box_for(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        witness: &Witness,
    ) -> Result<Begun, SessionError> {
        if let Some(begun) = self.warm.take(spec, &self.backends, witness).await? {
            return Ok(begun);
        }
        self.warm.make_room(keeper::room(self));
        self.backends.start(spec, progress, witness).await
    }
}

impl Warm {
    /// From now on these are wanted. Boxes of others go.
    pub(crate) fn want(&self, wishes: Vec<WarmWish>) {
        let mut shelves = lock(&self.shelves);
        let mut before = std::mem::take(&mut *shelves);
        for wish in wishes {
            if wish.most == 0 || !wish.spec.can_be_made_ahead() {
                continue;
            }
            let same = |shelf: &Shelf| shelf.spec.is_twin_of(&wish.spec);
            let boxes = match before.iter().position(same) {
                Some(at) => before.swap_remove(at).boxes,
                None => Vec::new(),
            };
            shelves.push(Shelf {
                spec: Arc::new(wish.spec),
                demand: Demand::new(wish.most),
                boxes,
                not_before: None,
            });
        }
        drop(shelves);
        discard(before.into_iter().flat_map(|shelf| shelf.boxes));
        self.changed.notify_one();
    }

    /// The box that `spec` asks for, if one waits. Whoever writes boxes down is told now that this one
    /// is somebody's; when that fails the box goes on waiting.
    pub(crate) async fn take(
        &self,
        spec: &AdmittedSpec,
        backends: &Backends,
        witness: &Witness,
    ) -> Result<Option<Begun>, SessionError> {
        let Some(waiting) = self.pop(spec, backends) else {
            return Ok(None);
        };
        if let Some(handle) = &waiting.handle
            && let Err(source) = witness.about_to_start(handle.clone()).await
        {
            self.put_back(spec, waiting);
            return Err(SessionError::Start {
                source: Arc::new(StartError::Step {
                    step: "write it down".to_owned(),
                    source,
                }),
            });
        }
        let Begun {
            backend, sandbox, ..
        } = waiting.begun;
        let spec = Arc::new(spec.on_backend(backend.name()));
        Ok(Some(Begun {
            backend,
            sandbox,
            spec,
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

    /// Sessions come before boxes that wait: lets as many go as it takes to have `room` at most.
    pub(crate) fn make_room(&self, room: usize) {
        let mut shelves = lock(&self.shelves);
        let mut surplus = Vec::new();
        let count =
            |shelves: &[Shelf]| shelves.iter().map(|shelf| shelf.boxes.len()).sum::<usize>();
        while count(&shelves) > room {
            let fullest = shelves.iter_mut().max_by_key(|shelf| shelf.boxes.len());
            surplus.extend(fullest.and_then(|shelf| shelf.boxes.pop()));
        }
        drop(shelves);
        discard(surplus);
    }

    /// The images of a backend are about to change: what was made from them goes first, because it
    /// would be in the way, or out of date.
    pub(crate) async fn forget(&self, backend: &str) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut going = Vec::new();
        for shelf in &mut *lock(&self.shelves) {
            let boxes = std::mem::take(&mut shelf.boxes);
            let (theirs, others): (Vec<_>, Vec<_>) = boxes
                .into_iter()
                .partition(|waiting| waiting.begun.backend.name() == backend);
            shelf.boxes = others;
            if !theirs.is_empty() {
                // Whoever changes the images comes first.
                shelf.not_before = Some(Instant::now() + AFTER_CHANGE);
            }
            going.extend(theirs);
        }
        stop_all(going).await;
        self.changed.notify_one();
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        lock(&self.shelves)
            .iter()
            .map(|shelf| shelf.boxes.len())
            .sum()
    }

    /// Removes every box that waits. None is made any more.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
        // Whoever is making one sees the mark when it is there.
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

    /// True for the first caller only.
    pub(crate) fn needs_keeper(&self) -> bool {
        !self.kept.swap(true, Ordering::AcqRel)
    }
}

/// In a task: whoever found them in the way does not wait for them.
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
            tracing::warn!(%error, name = sandbox.id(), "a box that waited was not removed cleanly");
        }
    });
    join_all(stops).await;
}
