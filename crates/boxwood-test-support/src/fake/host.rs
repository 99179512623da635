//! A fake host: boxes and programs that outlive a daemon.
//!
//! A daemon is a [`FakeBackend`] on a host and everything that uses it. To kill one, call [`FakeHost::crash`] and drop
//! what uses the backend. Its boxes stay, and the next backend on the host finds them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_api::SessionId;
use boxwood_backend::BoxHandle;

use super::boxes::FakeBox;
use super::life::{Fault, Faults, Life, Point};
use super::{FakeBackend, lock};

/// Number of the next box, over all hosts of a test process. The id of a box also contains the process id.
static BOXES: AtomicU64 = AtomicU64::new(1);

#[derive(Default)]
pub struct FakeHost {
    boxes: Mutex<BTreeMap<String, Arc<FakeBox>>>,
    lives: Mutex<Vec<Arc<Life>>>,
    pub(super) faults: Faults,
}

impl FakeHost {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The backend of a new daemon on this host. Its boxes outlive it.
    pub fn backend(self: &Arc<Self>) -> Arc<FakeBackend> {
        self.backend_named("fake")
    }

    pub fn backend_named(self: &Arc<Self>, name: &'static str) -> Arc<FakeBackend> {
        Arc::new(FakeBackend::on(Arc::clone(self), name, true))
    }

    /// Kills every daemon on this host. Their objects have no effect from now on.
    pub fn crash(&self) {
        for life in lock(&self.lives).drain(..) {
            life.end();
        }
    }

    /// Injects a fault at the next operation that reaches this point.
    pub fn fault(&self, point: Point, fault: Fault) {
        self.faults.inject(point, fault);
    }

    /// Clears pending faults and releases everything that hangs.
    pub fn mend(&self) {
        self.faults.clear();
    }

    /// All boxes that were not removed, also dead ones.
    pub fn boxes(&self) -> Vec<Arc<FakeBox>> {
        lock(&self.boxes).values().cloned().collect()
    }

    pub fn running_boxes(&self) -> Vec<Arc<FakeBox>> {
        let mut boxes = self.boxes();
        boxes.retain(|found| found.is_alive());
        boxes
    }

    pub fn box_of(&self, session: &SessionId) -> Option<Arc<FakeBox>> {
        self.running_boxes()
            .into_iter()
            .find(|found| found.session() == session)
    }

    pub(super) fn begin_life(&self) -> Arc<Life> {
        let life = Arc::new(Life::begin());
        lock(&self.lives).push(Arc::clone(&life));
        life
    }

    pub(super) fn next_number() -> u64 {
        BOXES.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn add(&self, fake_box: Arc<FakeBox>) {
        lock(&self.boxes).insert(fake_box.id().to_owned(), fake_box);
    }

    pub(super) fn find(&self, handle: &BoxHandle) -> Option<Arc<FakeBox>> {
        let found = lock(&self.boxes).get(&handle.name).cloned();
        found.filter(|found| found.handle() == *handle)
    }

    pub(super) fn forget(&self, id: &str) {
        let removed = lock(&self.boxes).remove(id);
        // Dropped outside the lock, because removing a box takes time.
        drop(removed);
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        for fake_box in self.boxes() {
            fake_box.die();
        }
    }
}
