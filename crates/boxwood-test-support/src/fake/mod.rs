//! A backend without any isolation, for tests that need no privileges.
//!
//! Boxes are temporary directories, and programs are children or threads of the test. The isolation label is empty. The
//! rest of the backend contract is implemented.
//!
//! A program's working directory is inside the temporary directory, but absolute paths in commands
//! are the host's: there is no root of its own without privileges.
//!
//! Boxes live on a [`FakeHost`], where they outlive a daemon that was killed.

mod boxes;
mod control;
mod file_tools;
mod files;
mod host;
mod images;
mod launch;
mod life;
mod link;
mod pipes;
mod program;
mod sandbox;
mod script;
mod terminal;
mod tree;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::SessionId;
use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Finding, Images, Outcome,
    Probe, ProbeError, Progress, Sandbox, StartError, StartRecorder,
};
use boxwood_policy::AdmittedSpec;
use tokio::sync::watch;

pub use boxes::FakeBox;
pub use host::FakeHost;
pub use images::FakeImages;
pub use life::{Fault, Point};

use life::Life;
use link::Link;
use sandbox::FakeSandbox;

#[derive(Clone, Debug, Default)]
enum NextStart {
    #[default]
    Works,
    /// With this text, once.
    Fails(String),
    Panics,
}

/// Why the backend is unavailable, and the fix.
#[derive(Clone, Debug)]
struct Broken {
    why: String,
    fix: String,
}

pub struct FakeBackend {
    name: &'static str,
    host: Arc<FakeHost>,
    life: Arc<Life>,
    adoption: bool,
    broken: Mutex<Option<Broken>>,
    probes: AtomicUsize,
    probe_delay: Mutex<Duration>,
    has_terminals: AtomicBool,
    /// Starts wait while this is `false`.
    open: watch::Sender<bool>,
    delay: Mutex<Duration>,
    next_start: Mutex<NextStart>,
    starts: AtomicUsize,
    shut_down: AtomicUsize,
    live_mounts: AtomicBool,
    freezes: AtomicBool,
    mounting: Arc<Mounting>,
    pub images: FakeImages,
}

/// How mounts into running boxes behave, and how many were made.
#[derive(Default)]
pub(crate) struct Mounting {
    count: AtomicUsize,
    delay: Mutex<Duration>,
    /// With this text, once.
    failure: Mutex<Option<String>>,
}

impl FakeBackend {
    /// A backend on a host of its own.
    pub fn new() -> Arc<Self> {
        Self::named("fake")
    }

    /// A backend with a name, for tests with several backends.
    pub fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self::on(FakeHost::new(), name, false))
    }

    fn on(host: Arc<FakeHost>, name: &'static str, adoption: bool) -> Self {
        Self {
            name,
            life: host.begin_life(),
            host,
            adoption,
            broken: Mutex::default(),
            probes: AtomicUsize::new(0),
            probe_delay: Mutex::default(),
            has_terminals: AtomicBool::new(true),
            open: watch::Sender::new(true),
            delay: Mutex::default(),
            next_start: Mutex::default(),
            starts: AtomicUsize::new(0),
            shut_down: AtomicUsize::new(0),
            live_mounts: AtomicBool::new(true),
            freezes: AtomicBool::new(true),
            mounting: Arc::default(),
            images: FakeImages::default(),
        }
    }

    /// Resolves when this daemon is killed, by [`FakeHost::crash`] or by a [`Fault`].
    pub async fn killed(&self) {
        self.life.ended().await;
    }

    /// Makes the engine unavailable: probes report it, and boxes do not start.
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

    /// Number of probes.
    pub fn probes(&self) -> usize {
        self.probes.load(Ordering::Acquire)
    }

    /// From now on boxes have no terminals.
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

    /// From now on mounts cannot be added to running boxes.
    pub fn forbid_live_mounts(&self) {
        self.live_mounts.store(false, Ordering::Release);
    }

    /// From now on boxes cannot be frozen.
    pub fn forbid_freezing(&self) {
        self.freezes.store(false, Ordering::Release);
    }

    pub fn delay_mounts(&self, delay: Duration) {
        *lock(&self.mounting.delay) = delay;
    }

    pub fn fail_next_mount(&self, why: &str) {
        *lock(&self.mounting.failure) = Some(why.to_owned());
    }

    /// Number of mounts that were added to running boxes.
    pub fn live_mounts(&self) -> usize {
        self.mounting.count.load(Ordering::Acquire)
    }

    /// Number of starts, including failed and waiting ones.
    pub fn starts(&self) -> usize {
        self.starts.load(Ordering::Acquire)
    }

    /// Number of shutdowns.
    pub fn shutdowns(&self) -> usize {
        self.shut_down.load(Ordering::Acquire)
    }

    /// Boxes that are alive.
    pub fn boxes(&self) -> Vec<Arc<FakeBox>> {
        let mut boxes = self.host.running_boxes();
        boxes.retain(|found| found.backend() == self.name);
        boxes
    }

    /// Ends the box of a session as a crash would. Returns false if there is none.
    pub fn kill_box(&self, session: &SessionId) -> bool {
        let found = self
            .boxes()
            .into_iter()
            .find(|found| found.session() == session);
        match found {
            Some(found) => {
                found.die();
                true
            }
            None => false,
        }
    }

    async fn begin(
        &self,
        spec: &AdmittedSpec,
        progress: &Progress,
        recorder: &StartRecorder,
    ) -> Result<Arc<dyn Sandbox>, StartError> {
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
        self.make(spec, recorder).await
    }

    /// The same steps, in the same order, as in real backends.
    async fn make(
        &self,
        spec: &AdmittedSpec,
        recorder: &StartRecorder,
    ) -> Result<Arc<dyn Sandbox>, StartError> {
        let step = |step: &'static str| {
            move |source| StartError::Step {
                step: step.to_owned(),
                source,
            }
        };
        let faults = &self.host.faults;
        let number = FakeHost::next_number();
        let reached = faults.reach(Point::BeforeRecord, &self.life, None);
        reached.await.map_err(step("the test asked for it"))?;
        if self.adoption {
            let recording = recorder.record(FakeBox::handle_of(self.name, number));
            recording.await.map_err(step("recording the box"))?;
        }
        let reached = faults.reach(Point::AfterRecord, &self.life, None);
        reached.await.map_err(step("the test asked for it"))?;
        let fake_box = FakeBox::create(spec, self.name, number);
        let fake_box = Arc::new(fake_box.map_err(step("making the box's directories"))?);
        self.host.add(Arc::clone(&fake_box));
        let sandbox = self.sandbox_for(Arc::clone(&fake_box));
        let reached = faults.reach(Point::Made, &self.life, Some(&fake_box));
        reached.await.map_err(step("the test asked for it"))?;
        Ok(Arc::new(sandbox))
    }

    fn sandbox_for(&self, found: Arc<FakeBox>) -> FakeSandbox {
        let mounting = self.live_mounts.load(Ordering::Acquire);
        let mounting = mounting.then(|| Arc::clone(&self.mounting));
        let freezes = self.freezes.load(Ordering::Acquire);
        FakeSandbox::new(Link::new(&self.host, &self.life, found), mounting, freezes)
    }

    async fn take_over(&self, handle: &BoxHandle) -> Result<Adopted, AdoptError> {
        if !self.adoption || handle.backend != self.name {
            return Err(AdoptError::Unsupported);
        }
        let failed = |source| AdoptError::Step {
            step: "the test asked for it".to_owned(),
            source,
        };
        let found = self.host.find(handle);
        let faults = &self.host.faults;
        let reached = faults.reach(Point::BeforeAdopt, &self.life, found.as_deref());
        reached.await.map_err(failed)?;
        let found = found.filter(|found| found.is_alive());
        let found = found.ok_or(AdoptError::Gone)?;
        let record = found.record().ok_or(AdoptError::Unfinished)?;
        let sandbox = self.sandbox_for(Arc::clone(&found));
        if let Err(error) = faults.reach(Point::Adopted, &self.life, Some(&found)).await {
            // `finish_adoption` removes the box.
            sandbox.detach();
            found.clear_owner();
            return Err(failed(error));
        }
        sandbox.adopted(record).map_err(|source| AdoptError::Step {
            step: "copying what was kept".to_owned(),
            source,
        })
    }

    async fn remove_unadopted(&self) {
        if !self.adoption {
            return;
        }
        let faults = &self.host.faults;
        // The error has no receiver.
        let _ = faults.reach(Point::BeforeSettle, &self.life, None).await;
        for fake_box in self.host.boxes() {
            if fake_box.backend() == self.name && !fake_box.is_owned_by(&self.life) {
                // A directory that stays is a leak, and tests look for those.
                let _ = fake_box.remove();
                self.host.forget(fake_box.id());
            }
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
            adoption: self.adoption,
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
                matters: "the test has disabled the engine",
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
        recorder: &'a StartRecorder,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>> {
        Box::pin(self.life.live(self.begin(spec, progress, recorder)))
    }

    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>> {
        Box::pin(self.life.live(async {
            let mut left = self.host.boxes();
            left.retain(|found| {
                self.adoption && found.backend() == self.name && !found.is_owned_by(&self.life)
            });
            left.iter().map(|found| found.handle()).collect()
        }))
    }

    fn adopt<'a>(&'a self, handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>> {
        Box::pin(self.life.live(self.take_over(handle)))
    }

    fn finish_adoption(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.life.live(self.remove_unadopted()))
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

/// Ignores poisoning, so that the first panic of a test is not followed by others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
