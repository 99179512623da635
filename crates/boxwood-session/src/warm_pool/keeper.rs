//! Starts prewarmed boxes, one at a time, while the daemon is idle.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_api::with_causes;
use boxwood_backend::{BoxHandle, Progress, StartRecorder};
use boxwood_policy::AdmittedSpec;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::images::Images;
use super::{PrewarmedBox, count, discard};
use crate::backends::Backends;
use crate::session::activity::lock;
use crate::session::registry::Registry;

/// Time without requests that counts as idle.
const IDLE_TIME: Duration = Duration::from_millis(12);
/// On a daemon that is never idle, boxes are prewarmed after this time.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// Pause after a failed start. Requests meanwhile report the error.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Interval of checks for changed images.
const IMAGE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Runs until the registry is dropped or shut down.
pub(crate) async fn keep(registry: Weak<Registry>) {
    let mut images_checked_at = Instant::now();
    loop {
        let Some(current) = registry.upgrade() else {
            return;
        };
        if current.warm.is_closed() {
            return;
        }
        current.warm.make_room(room(&current));
        current.warm.drop_surplus();
        if images_checked_at.elapsed() >= IMAGE_CHECK_INTERVAL {
            current.warm.drop_outdated(&current.backends).await;
            images_checked_at = Instant::now();
        }
        if let Some(spec) = current.warm.next_to_prewarm(room(&current)) {
            wait_until_idle(&current).await;
            prewarm(&current, spec).await;
            continue;
        }
        let changed = Arc::clone(&current.warm.changed);
        let next = current.warm.next_scan(images_checked_at);
        // The registry is not kept alive while waiting.
        drop(current);
        tokio::select! {
            () = changed.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// Number of boxes that may be prewarmed in addition to the sessions.
pub(super) fn room(registry: &Registry) -> usize {
    let max_sessions = registry.settings.max_sessions;
    max_sessions.saturating_sub(registry.occupied())
}

/// Resolves when no session is being created and no command is being started.
async fn wait_until_idle(registry: &Registry) {
    let since = Instant::now();
    while since.elapsed() < MAX_DELAY {
        let exec_id = registry.exec_ids.load(Ordering::Relaxed);
        sleep(IDLE_TIME).await;
        let (starting, _) = registry.starting_and_closing();
        if starting == 0 && exec_id == registry.exec_ids.load(Ordering::Relaxed) {
            return;
        }
    }
}

async fn prewarm(registry: &Registry, spec: Arc<AdmittedSpec>) {
    let warm = &registry.warm;
    let _guard = warm.prewarming.lock().await;
    if warm.is_closed() {
        return;
    }
    let handle: Arc<Mutex<Option<BoxHandle>>> = Arc::default();
    let recorded = Arc::clone(&handle);
    // A prewarmed box is not in the ledger. What identifies it is kept until it is used.
    let recorder = StartRecorder::new(move |box_handle| {
        *lock(&recorded) = Some(box_handle);
        Box::pin(async { Ok(()) })
    });
    // Before the start: later changes outdate the box.
    let changes = warm.changes();
    let Some(backend) = registry.backends.current_of(&spec) else {
        tracing::warn!(
            profile = spec.profile(),
            "no backend is available for prewarmed boxes"
        );
        warm.pause(&spec);
        return;
    };
    let images = Images::current(&*backend, &spec).await;
    let started = registry
        .backends
        .start(&spec, &Progress::silent(), &recorder)
        .await;
    let started_box = match started {
        Ok(started_box) => started_box,
        Err(error) => {
            tracing::warn!(profile = spec.profile(), error = %with_causes(&error), "failed to prewarm a box");
            warm.pause(&spec);
            return;
        }
    };
    // The images of another backend are not known. The next attempt begins with that backend.
    let is_expected = started_box.backend.name() == backend.name();
    let (sandbox, changed) = (Arc::clone(&started_box.sandbox), Arc::clone(&warm.changed));
    let mut watch = JoinSet::new();
    watch.spawn(async move {
        sandbox.gone().await;
        changed.notify_one();
    });
    let handle = lock(&handle).take();
    let prewarmed = PrewarmedBox {
        started_box,
        handle,
        images,
        _watch: watch,
    };
    if is_expected && warm.changes() == changes {
        warm.put_back(&spec, prewarmed);
    } else {
        discard([prewarmed]);
    }
}

impl super::Warm {
    /// The profile that lacks the most boxes, if one more is allowed.
    fn next_to_prewarm(&self, room: usize) -> Option<Arc<AdmittedSpec>> {
        let now = Instant::now();
        let pools = lock(&self.pools);
        if count(&pools) >= room {
            return None;
        }
        let candidates = pools
            .iter()
            .filter(|pool| pool.not_before.is_none_or(|until| until <= now))
            .map(|pool| {
                let missing = pool.demand.target().saturating_sub(pool.boxes.len());
                (missing, pool)
            });
        let (missing, pool) = candidates.max_by_key(|(missing, _)| *missing)?;
        (missing > 0).then(|| Arc::clone(&pool.spec))
    }

    /// Removes dead and surplus boxes.
    fn drop_surplus(&self) {
        let now = Instant::now();
        let mut surplus = Vec::new();
        for pool in &mut *lock(&self.pools) {
            pool.demand.time_passed(now);
            surplus.extend(pool.remove(|prewarmed| !prewarmed.started_box.sandbox.is_alive()));
            let target = pool.demand.target().min(pool.boxes.len());
            surplus.extend(pool.boxes.drain(target..));
        }
        discard(surplus);
    }

    /// Removes boxes whose images have changed, and those on a backend that is no longer used.
    async fn drop_outdated(&self, backends: &Backends) {
        let specs: Vec<_> = lock(&self.pools)
            .iter()
            .filter(|pool| !pool.boxes.is_empty())
            .map(|pool| Arc::clone(&pool.spec))
            .collect();
        for spec in specs {
            let Some(backend) = backends.current_of(&spec) else {
                continue;
            };
            let images = Images::current(&*backend, &spec).await;
            let is_outdated = |prewarmed: &mut PrewarmedBox| {
                prewarmed.started_box.backend.name() != backend.name()
                    || prewarmed.images.differ_from(&images)
            };
            let mut pools = lock(&self.pools);
            let pool = pools.iter_mut().find(|pool| Arc::ptr_eq(&pool.spec, &spec));
            let outdated = pool.map(|pool| pool.remove(is_outdated));
            drop(pools);
            discard(outdated.unwrap_or_default());
        }
    }

    fn pause(&self, spec: &Arc<AdmittedSpec>) {
        for pool in &mut *lock(&self.pools) {
            if Arc::ptr_eq(&pool.spec, spec) {
                pool.not_before = Some(Instant::now() + RETRY_PAUSE);
            }
        }
    }

    /// Time of the next step without requests.
    fn next_scan(&self, images_checked_at: Instant) -> Instant {
        let images = images_checked_at + IMAGE_CHECK_INTERVAL;
        let pools = lock(&self.pools);
        let changes = pools.iter().flat_map(|pool| {
            let pause = pool.not_before.filter(|until| *until > Instant::now());
            [pool.demand.next_change(), pause]
        });
        changes.flatten().fold(images, Instant::min)
    }
}
