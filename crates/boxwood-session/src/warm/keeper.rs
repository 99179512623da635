//! Makes boxes ahead, one at a time, when nobody else wants the machine.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_backend::{BoxHandle, Progress, Witness};
use boxwood_policy::AdmittedSpec;
use tokio::time::{Instant, sleep, sleep_until};

use super::images::Images;
use super::{Waiting, Watch, discard};
use crate::activity::lock;
use crate::registry::Registry;

/// Nothing was asked for this long: a quiet moment.
const QUIET: Duration = Duration::from_millis(12);
/// On a host that is never quiet they are made all the same.
const PATIENCE: Duration = Duration::from_millis(500);
/// After a start that failed. Whoever asks for a box meanwhile hears why.
const PAUSE: Duration = Duration::from_secs(30);
/// Between two looks at the images, which others may change.
const IMAGES_LOOK: Duration = Duration::from_secs(30);

/// Runs until the registry is gone or its warm boxes are.
pub(crate) async fn keep(registry: Weak<Registry>) {
    let mut looked_at_images = Instant::now();
    loop {
        let Some(held) = registry.upgrade() else {
            return;
        };
        if held.warm.is_closed() {
            return;
        }
        held.warm.make_room(room(&held));
        held.warm.drop_surplus();
        if looked_at_images.elapsed() >= IMAGES_LOOK {
            held.warm.drop_outdated().await;
            looked_at_images = Instant::now();
        }
        if let Some(spec) = held.warm.next_to_make(room(&held)) {
            quiet(&held).await;
            make(&held, spec).await;
            continue;
        }
        let changed = Arc::clone(&held.warm.changed);
        let next = held.warm.next_look(looked_at_images);
        // Nothing here keeps the registry alive while it sleeps.
        drop(held);
        tokio::select! {
            () = changed.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// How many boxes may wait beside the sessions there are.
pub(super) fn room(registry: &Registry) -> usize {
    let most = registry.settings.max_sessions;
    most.saturating_sub(registry.occupied())
}

/// Resolves when no session is being made and no command begins.
async fn quiet(registry: &Registry) {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let before = registry.exec_ids.load(Ordering::Relaxed);
        sleep(QUIET).await;
        let (starting, _) = registry.in_motion();
        if starting == 0 && before == registry.exec_ids.load(Ordering::Relaxed) {
            return;
        }
    }
}

async fn make(registry: &Registry, spec: Arc<AdmittedSpec>) {
    let warm = &registry.warm;
    let _making = warm.making.lock().await;
    if warm.is_closed() {
        return;
    }
    let handle: Arc<Mutex<Option<BoxHandle>>> = Arc::default();
    let told = Arc::clone(&handle);
    // Nobody's box is not written down; how it is found again is kept for whoever takes it.
    let witness = Witness::new(move |found| {
        *lock(&told) = Some(found);
        Box::pin(async { Ok(()) })
    });
    // Seen before the start: what changes meanwhile outdates the box.
    let changes = warm.changes();
    let expected = registry.backends.current_of(&spec);
    let seen = match &expected {
        Some(backend) => Some((backend.name(), Images::now(&**backend, &spec).await)),
        None => None,
    };
    let started = registry
        .backends
        .start(&spec, &Progress::silent(), &witness)
        .await;
    let begun = match started {
        Ok(begun) => begun,
        Err(error) => {
            tracing::warn!(profile = spec.profile(), %error, "a box could not be made ahead");
            warm.pause(&spec);
            return;
        }
    };
    let images = match seen {
        Some((name, seen)) if name == begun.backend.name() => seen,
        _ => Images::now(&*begun.backend, &spec).await,
    };
    let (sandbox, changed) = (Arc::clone(&begun.sandbox), Arc::clone(&warm.changed));
    let watching = tokio::spawn(async move {
        sandbox.gone().await;
        changed.notify_one();
    });
    let handle = lock(&handle).take();
    let waiting = Waiting {
        begun,
        handle,
        images,
        _watch: Watch(watching.abort_handle()),
    };
    if warm.changes() == changes {
        warm.put_back(&spec, waiting);
    } else {
        discard([waiting]);
    }
}

impl super::Warm {
    /// The profile that lacks most, if there is room for one more box.
    fn next_to_make(&self, room: usize) -> Option<Arc<AdmittedSpec>> {
        let now = Instant::now();
        let shelves = lock(&self.shelves);
        let waiting: usize = shelves.iter().map(|shelf| shelf.boxes.len()).sum();
        if waiting >= room {
            return None;
        }
        let lacking = shelves
            .iter()
            .filter(|shelf| shelf.not_before.is_none_or(|until| until <= now))
            .map(|shelf| {
                let lacks = shelf.demand.wanted().saturating_sub(shelf.boxes.len());
                (lacks, shelf)
            });
        let (lacks, shelf) = lacking.max_by_key(|(lacks, _)| *lacks)?;
        (lacks > 0).then(|| Arc::clone(&shelf.spec))
    }

    /// Lets go of the dead, and of what is more than anybody wants.
    fn drop_surplus(&self) {
        let now = Instant::now();
        let mut surplus = Vec::new();
        for shelf in &mut *lock(&self.shelves) {
            shelf.demand.time_passed(now);
            let boxes = std::mem::take(&mut shelf.boxes);
            let (alive, dead): (Vec<_>, Vec<_>) = boxes
                .into_iter()
                .partition(|waiting| waiting.begun.sandbox.is_alive());
            shelf.boxes = alive;
            surplus.extend(dead);
            let wanted = shelf.demand.wanted().min(shelf.boxes.len());
            surplus.extend(shelf.boxes.drain(wanted..));
        }
        discard(surplus);
    }

    /// Lets go of what was made from images that have changed since.
    async fn drop_outdated(&self) {
        let mut backends = Vec::new();
        for shelf in &*lock(&self.shelves) {
            for waiting in &shelf.boxes {
                let backend = &waiting.begun.backend;
                backends.push((Arc::clone(backend), Arc::clone(&shelf.spec)));
            }
        }
        backends
            .dedup_by(|one, other| one.0.name() == other.0.name() && Arc::ptr_eq(&one.1, &other.1));
        for (backend, spec) in backends {
            let now = Images::now(&*backend, &spec).await;
            let mut outdated = Vec::new();
            for shelf in &mut *lock(&self.shelves) {
                if !Arc::ptr_eq(&shelf.spec, &spec) {
                    continue;
                }
                let boxes = std::mem::take(&mut shelf.boxes);
                let is_old = |waiting: &Waiting| {
                    waiting.begun.backend.name() == backend.name()
                        && waiting.images.differ_from(&now)
                };
                let (old, current): (Vec<_>, Vec<_>) = boxes.into_iter().partition(is_old);
                shelf.boxes = current;
                outdated.extend(old);
            }
            discard(outdated);
        }
    }

    fn pause(&self, spec: &Arc<AdmittedSpec>) {
        for shelf in &mut *lock(&self.shelves) {
            if Arc::ptr_eq(&shelf.spec, spec) {
                shelf.not_before = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// When something may have to be done though nobody asked for anything.
    fn next_look(&self, looked_at_images: Instant) -> Instant {
        let images = looked_at_images + IMAGES_LOOK;
        let shelves = lock(&self.shelves);
        let changes = shelves.iter().flat_map(|shelf| {
            let pause = shelf.not_before.filter(|until| *until > Instant::now());
            [shelf.demand.next_change(), pause]
        });
        changes.flatten().fold(images, Instant::min)
    }
}
