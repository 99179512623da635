//! Starts prewarmed boxes, one at a time, while the daemon is idle.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

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
        let Some(held) = registry.upgrade() else {
            return;
        };
        if held.warm.is_closed() {
            return;
        }
        held.warm.make_room(room(&held));
        held.warm.drop_surplus();
        if images_checked_at.elapsed() >= IMAGE_CHECK_INTERVAL {
            held.warm.drop_outdated(&held.backends).await;
            images_checked_at = Instant::now();
        }
        if let Some(spec) = held.warm.next_to_make(room(&held)) {
            quiet(&held).await;
            make(&held, spec).await;
            continue;
        }
        let changed = Arc::clone(&held.warm.changed);
        let next = held.warm.next_scan(images_checked_at);
        // The registry is not kept alive while waiting.
        drop(held);
        tokio::select! {
            () = changed.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

/// Number of boxes that may be prewarmed beside the sessions.
pub(super) fn room(registry: &Registry) -> usize {
    let most = registry.settings.max_sessions;
    most.saturating_sub(registry.occupied())
}

/// Resolves when no session is being created and no command is being started.
async fn quiet(registry: &Registry) {
    let since = Instant::now();
    while since.elapsed() < MAX_DELAY {
        let before = registry.exec_ids.load(Ordering::Relaxed);
        sleep(IDLE_TIME).await;
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
    // A prewarmed box is not in the ledger. What identifies it is kept until it is used.
    let recorder = StartRecorder::new(move |found| {
        *lock(&told) = Some(found);
        Box::pin(async { Ok(()) })
    });
    // Before the start: later changes outdate the box.
    let changes = warm.changes();
    let Some(backend) = registry.backends.current_of(&spec) else {
        tracing::warn!(
            profile = spec.profile(),
            "there is no backend for prewarmed boxes"
        );
        warm.pause(&spec);
        return;
    };
    let images = Images::now(&*backend, &spec).await;
    let started = registry
        .backends
        .start(&spec, &Progress::silent(), &recorder)
        .await;
    let begun = match started {
        Ok(begun) => begun,
        Err(error) => {
            tracing::warn!(profile = spec.profile(), %error, "failed to prewarm a box");
            warm.pause(&spec);
            return;
        }
    };
    // Otherwise its images are not known, and the next box is started on the right backend.
    let is_expected = begun.backend.name() == backend.name();
    let (sandbox, changed) = (Arc::clone(&begun.sandbox), Arc::clone(&warm.changed));
    let mut watch = JoinSet::new();
    watch.spawn(async move {
        sandbox.gone().await;
        changed.notify_one();
    });
    let handle = lock(&handle).take();
    let waiting = PrewarmedBox {
        begun,
        handle,
        images,
        _watch: watch,
    };
    if is_expected && warm.changes() == changes {
        warm.put_back(&spec, waiting);
    } else {
        discard([waiting]);
    }
}

impl super::Warm {
    /// The profile that lacks the most boxes, if one more is allowed.
    fn next_to_make(&self, room: usize) -> Option<Arc<AdmittedSpec>> {
        let now = Instant::now();
        let pools = lock(&self.pools);
        if count(&pools) >= room {
            return None;
        }
        let lacking = pools
            .iter()
            .filter(|pool| pool.not_before.is_none_or(|until| until <= now))
            .map(|pool| {
                let lacks = pool.demand.wanted().saturating_sub(pool.boxes.len());
                (lacks, pool)
            });
        let (lacks, pool) = lacking.max_by_key(|(lacks, _)| *lacks)?;
        (lacks > 0).then(|| Arc::clone(&pool.spec))
    }

    /// Removes dead and surplus boxes.
    fn drop_surplus(&self) {
        let now = Instant::now();
        let mut surplus = Vec::new();
        for pool in &mut *lock(&self.pools) {
            pool.demand.time_passed(now);
            surplus.extend(pool.remove(|waiting| !waiting.begun.sandbox.is_alive()));
            let wanted = pool.demand.wanted().min(pool.boxes.len());
            surplus.extend(pool.boxes.drain(wanted..));
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
            let now = Images::now(&*backend, &spec).await;
            let is_outdated = |waiting: &mut PrewarmedBox| {
                waiting.begun.backend.name() != backend.name() || waiting.images.differ_from(&now)
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
