//! A backend without any isolation, for tests that need no privileges.
//!
//! Comes in: admitted specs. Goes out: "boxes" that are temporary directories, and programs that
//! are plain children of the test. Never here: a wall of any kind. Its label says so: nothing is in
//! force. Everything else of the backend contract is real, so that what is proven above it holds.
//!
//! A program's working directory is inside the temporary directory, but absolute paths in commands
//! are the host's: there is no root of its own without privileges.

mod files;
mod images;
mod pipes;
mod program;
mod sandbox;
mod terminal;
mod tree;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use boxwood_api::SessionId;
use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Finding, Images, Outcome,
    Probe, ProbeError, Progress, Sandbox, StartError, Witness,
};
use boxwood_policy::AdmittedSpec;
use tokio::sync::watch;

pub use images::FakeImages;
pub use sandbox::FakeSandbox;

/// Numbers boxes over all backends of one test process, which has a process id of its own.
static BOXES: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Debug, Default)]
enum NextStart {
    #[default]
    Works,
    /// With this text, once.
    Fails(String),
    Panics,
}

/// Why it does not work, and what helps.
#[derive(Clone, Debug)]
struct Broken {
    why: String,
    fix: String,
}

pub struct FakeBackend {
    name: &'static str,
    broken: Mutex<Option<Broken>>,
    probes: AtomicUsize,
    probe_delay: Mutex<Duration>,
    has_terminals: AtomicBool,
    /// Starts wait while this is `false`.
    open: watch::Sender<bool>,
    delay: Mutex<Duration>,
    next_start: Mutex<NextStart>,
    starts: AtomicUsize,
    boxes: Mutex<Vec<Weak<FakeSandbox>>>,
    shut_down: AtomicUsize,
    live_mounts: AtomicBool,
    mounting: Arc<Mounting>,
    pub images: FakeImages,
}

/// How its boxes take mounts while they live, and how often they did.
#[derive(Default)]
pub(crate) struct Mounting {
    count: AtomicUsize,
    delay: Mutex<Duration>,
    /// With this text, once.
    failure: Mutex<Option<String>>,
}

impl Default for FakeBackend {
    fn default() -> Self {
        Self {
            name: "fake",
            broken: Mutex::default(),
            probes: AtomicUsize::new(0),
            probe_delay: Mutex::default(),
            has_terminals: AtomicBool::new(true),
            open: watch::Sender::new(true),
            delay: Mutex::default(),
            next_start: Mutex::default(),
            starts: AtomicUsize::new(0),
            boxes: Mutex::default(),
            shut_down: AtomicUsize::new(0),
            live_mounts: AtomicBool::new(true),
            mounting: Arc::default(),
            images: FakeImages::default(),
        }
    }
}

impl FakeBackend {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// One of several.
    pub fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            ..Self::default()
        })
    }

    /// From now on it is an engine that is not there: looks say so, and boxes do not start.
    pub fn break_down(&self, why: &str, fix: &str) {
        *lock(&self.broken) = Some(Broken {
            why: why.to_owned(),
            fix: fix.to_owned(),
        });
    }

    pub fn mend(&self) {
        *lock(&self.broken) = None;
    }

    pub fn delay_probes(&self, delay: Duration) {
        *lock(&self.probe_delay) = delay;
    }

    /// How often somebody has looked whether it works.
    pub fn probes(&self) -> usize {
        self.probes.load(Ordering::Acquire)
    }

    /// Is a backend whose boxes have no terminals.
    pub fn forbid_terminals(&self) {
        self.has_terminals.store(false, Ordering::Release);
    }

    /// Starts begin, and then wait for [`FakeBackend::release_starts`].
    pub fn hold_starts(&self) {
        self.open.send_replace(false);
    }

    pub fn release_starts(&self) {
        self.open.send_replace(true);
    }

    pub fn delay_starts(&self, delay: Duration) {
        *lock(&self.delay) = delay;
    }

    pub fn fail_next_start(&self, why: &str) {
        *lock(&self.next_start) = NextStart::Fails(why.to_owned());
    }

    pub fn panic_in_next_start(&self) {
        *lock(&self.next_start) = NextStart::Panics;
    }

    /// Is a backend whose boxes have the mounts they were made with, and no others.
    pub fn forbid_live_mounts(&self) {
        self.live_mounts.store(false, Ordering::Release);
    }

    pub fn delay_mounts(&self, delay: Duration) {
        *lock(&self.mounting.delay) = delay;
    }

    pub fn fail_next_mount(&self, why: &str) {
        *lock(&self.mounting.failure) = Some(why.to_owned());
    }

    /// How many mounts have joined boxes that lived.
    pub fn live_mounts(&self) -> usize {
        self.mounting.count.load(Ordering::Acquire)
    }

    /// How many starts have begun.
    pub fn starts(&self) -> usize {
        self.starts.load(Ordering::Acquire)
    }

    /// How often it was told to let go of everything.
    pub fn shutdowns(&self) -> usize {
        self.shut_down.load(Ordering::Acquire)
    }

    /// Boxes that are alive.
    pub fn boxes(&self) -> Vec<Arc<FakeSandbox>> {
        lock(&self.boxes)
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|sandbox| sandbox.is_alive())
            .collect()
    }

    /// The box of a session dies by itself, with everything in it. False when there is none.
    pub fn kill_box(&self, session: &SessionId) -> bool {
        let found = self
            .boxes()
            .into_iter()
            .find(|sandbox| sandbox.session() == session);
        match found {
            Some(sandbox) => {
                sandbox.die();
                true
            }
            None => false,
        }
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pty: self.has_terminals.load(Ordering::Acquire),
            managed_processes: true,
            files: true,
            network: true,
            host_mounts: true,
            live_mounts: self.live_mounts.load(Ordering::Acquire),
            adoption: false,
            mechanisms: Vec::new(),
        }
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, ProbeError>> {
        Box::pin(async {
            self.probes.fetch_add(1, Ordering::AcqRel);
            let delay = *lock(&self.probe_delay);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let engine = lock(&self.broken).clone().map(|broken| Finding {
                name: "engine",
                mechanism: None,
                outcome: Outcome::Fatal {
                    why: broken.why,
                    fix: broken.fix,
                },
                matters: "the test wants none",
            });
            let isolation = Finding {
                name: "isolation",
                mechanism: None,
                outcome: Outcome::Missing {
                    why: "this backend has none; it exists for tests".to_owned(),
                    fix: "use a real backend".to_owned(),
                },
                matters: "programs run as plain children of the caller",
            };
            Ok(Probe {
                findings: engine.into_iter().chain([isolation]).collect(),
            })
        })
    }

    fn start<'a>(
        &'a self,
        spec: &'a AdmittedSpec,
        progress: &'a Progress,
        _witness: &'a Witness,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>> {
        Box::pin(async move {
            self.starts.fetch_add(1, Ordering::AcqRel);
            self.images.pull_what_is_missing(progress);
            let next = std::mem::take(&mut *lock(&self.next_start));
            let delay = *lock(&self.delay);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            // The sender is part of this backend, so the channel cannot close.
            let _ = self.open.subscribe().wait_for(|open| *open).await;
            match next {
                NextStart::Works => {}
                NextStart::Fails(why) => {
                    let hint = "the test asked for it".to_owned();
                    return Err(StartError::Unavailable { why, hint });
                }
                NextStart::Panics => panic!("the test asked the fake backend to panic"),
            }
            if let Some(Broken { why, fix }) = lock(&self.broken).clone() {
                return Err(StartError::Unavailable { why, hint: fix });
            }
            if let Some(mechanism) = spec.require().first() {
                return Err(StartError::Missing {
                    mechanism: *mechanism,
                    why: "the fake backend has no isolation".to_owned(),
                });
            }
            let number = BOXES.fetch_add(1, Ordering::Relaxed);
            let mounting = self.live_mounts.load(Ordering::Acquire);
            let mounting = mounting.then(|| Arc::clone(&self.mounting));
            let sandbox =
                FakeSandbox::create(spec, number, mounting).map_err(|source| StartError::Step {
                    step: "making the box's directories".to_owned(),
                    source,
                })?;
            let sandbox = Arc::new(sandbox);
            let mut boxes = lock(&self.boxes);
            boxes.retain(|known| known.strong_count() > 0);
            boxes.push(Arc::downgrade(&sandbox));
            Ok(sandbox as Arc<dyn Sandbox>)
        })
    }

    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>> {
        Box::pin(async { Vec::new() })
    }

    fn adopt<'a>(&'a self, _handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>> {
        Box::pin(async { Err(AdoptError::Unsupported) })
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn images(&self) -> &dyn Images {
        &self.images
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.shut_down.fetch_add(1, Ordering::AcqRel);
        })
    }
}

/// A test that panicked while it held a lock must not hide behind a second panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
