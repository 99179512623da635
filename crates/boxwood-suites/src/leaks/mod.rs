//! Checks that a backend leaves nothing on the host after it has shut down: processes, mounts, cgroups, namespaces,
//! links, firewall rules, forwarding, descriptors, files, and records of an engine.

pub(crate) mod footprint;
mod killed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::{MountMode, Network};
use libtest_mimic::Trial;

use crate::{
    BackendSetup, BoxSpec, Feature, Fixture, Footprint, Host, StateDirs, TestBox, failed,
    run_trials, runtime,
};
use boxwood_backend::Progress;

/// The kernel removes network namespaces asynchronously, one after the other.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Numbers of repetitions. Backends that need a second per box find the same leaks with smaller numbers.
#[derive(Clone, Copy, Debug)]
pub struct LeakCounts {
    /// Boxes made, used and removed, one after the other.
    pub cycles: usize,
    /// Boxes alive at once.
    pub crowd: usize,
    /// Starts that are cancelled, each a little later than the one before.
    pub interrupted: usize,
    /// When the last of those starts is cancelled. Long enough for a start to succeed.
    pub longest_timeout: Duration,
}

type Body<S> = fn(&S, LeakCounts) -> anyhow::Result<()>;

/// The leak checks. Ends the process.
pub fn run_leaks<S: BackendSetup>(setup: S, counts: LeakCounts) -> ! {
    killed::run_as_daemon_if_requested(&setup);
    let setup = Arc::new(setup);
    let test = |name: &str, body: Body<S>| {
        let setup = Arc::clone(&setup);
        Trial::test(name, move || {
            body(&setup, counts).map_err(|error| failed(&error))
        })
    };
    let mut trials = vec![
        test("leaks::idle_backend_leaves_nothing", idle),
        test("leaks::create_exec_delete_cycles_leave_nothing", cycles),
        test("leaks::many_boxes_at_once_leave_nothing", crowd),
        test("leaks::boxes_killed_half_way_leave_nothing", interrupted),
        test("leaks::boxes_never_stopped_leave_nothing", abandoned),
        test("leaks::a_killed_daemon_leaves_nothing", killed_daemon),
    ];
    let adopts = |host: Host| host.has_feature(Feature::Adoption);
    if setup.host().is_ok_and(adopts) {
        trials.push(test("leaks::adopted_boxes_leave_nothing", adopted));
    }
    run_trials(trials)
}

/// Launches the backend, runs `work` and shuts the backend down; then everything must be as before.
fn around<F>(setup: &dyn BackendSetup, work: impl FnOnce(Arc<Fixture>) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    Footprint::claim_orphans()?;
    let dirs = StateDirs::make()?;
    let host = setup.host()?;
    prime(setup, &dirs)?;
    let before = HostState::take(setup, &dirs)?;
    let backend = setup.launch(&dirs)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let fixture = Arc::new(Fixture::new(Arc::clone(&backend), host)?);
        let outcome = work(Arc::clone(&fixture)).await;
        drop(fixture);
        backend.shutdown().await;
        outcome
    });
    drop(backend);
    runtime.shutdown_timeout(Duration::from_secs(10));
    outcome?;
    before.wait_until_restored(setup, &dirs)
}

/// The state of the host and of the engine at one moment.
struct HostState {
    footprint: Footprint,
    engine_objects: Vec<String>,
}

impl HostState {
    fn take(setup: &dyn BackendSetup, dirs: &StateDirs) -> anyhow::Result<Self> {
        Footprint::reap(setup.orphans());
        Ok(Self {
            footprint: Footprint::take(&dirs.all())?,
            engine_objects: setup.engine_objects()?,
        })
    }

    /// Waits until nothing new is left. The kernel removes namespaces and links asynchronously, an engine its
    /// containers, and other programs of the machine start and end; a leak is what stays.
    fn wait_until_restored(
        &self,
        setup: &dyn BackendSetup,
        dirs: &StateDirs,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let current = Self::take(setup, dirs)?;
            let mut left = current.footprint.beyond(&self.footprint);
            let mut objects = current.engine_objects;
            objects.retain(|entry| !self.engine_objects.contains(entry));
            left.extend(
                objects
                    .iter()
                    .map(|entry| format!("in the engine: {entry}")),
            );
            if left.is_empty() {
                return Ok(());
            }
            ensure!(
                began.elapsed() < SETTLE_TIMEOUT,
                "{} left behind:\n  {}",
                left.len(),
                left.join("\n  ")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A first run, so that objects that are created once and kept on purpose exist before the comparison: the lock in the
/// state directory, and the socket pair of the runtime for signals.
fn prime(setup: &dyn BackendSetup, dirs: &StateDirs) -> anyhow::Result<()> {
    setup.warm_up()?;
    let backend = setup.launch(dirs)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        backend.finish_adoption().await;
        backend.shutdown().await;
    });
    drop(backend);
    runtime.shutdown_timeout(Duration::from_secs(10));
    Ok(())
}

fn idle<S: BackendSetup>(setup: &S, _: LeakCounts) -> anyhow::Result<()> {
    around(setup, |_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(())
    })
}

/// Boxes of killed daemons, which the next daemon removes.
fn killed_daemon<S: BackendSetup>(setup: &S, _: LeakCounts) -> anyhow::Result<()> {
    Footprint::claim_orphans()?;
    let dirs = StateDirs::make()?;
    prime(setup, &dirs)?;
    let before = HostState::take(setup, &dirs)?;
    for _ in 0..3 {
        killed::run_and_kill(&dirs)?;
    }
    // The next daemon only starts and stops.
    prime(setup, &dirs)?;
    killed::reap_orphans()?;
    before.wait_until_restored(setup, &dirs)
}

/// Boxes of a killed daemon, some of which the next daemon adopts and stops.
fn adopted<S: BackendSetup>(setup: &S, _: LeakCounts) -> anyhow::Result<()> {
    Footprint::claim_orphans()?;
    let dirs = StateDirs::make()?;
    prime(setup, &dirs)?;
    let before = HostState::take(setup, &dirs)?;
    killed::run_and_kill(&dirs)?;
    let backend = setup.launch(&dirs)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let mut boxes = Vec::new();
        // One without a network and one with, where there is any.
        for handle in backend.left_running().await.iter().skip(2) {
            let adopted = backend.adopt(handle).await.context("adopting a box")?;
            boxes.push(TestBox::new(adopted.sandbox));
        }
        ensure!(boxes.len() == killed::BOXES - 2, "{} boxes", boxes.len());
        backend.finish_adoption().await;
        for test_box in &boxes {
            test_box.assert_responsive().await?;
            test_box.stop().await?;
        }
        backend.shutdown().await;
        Ok(())
    });
    drop(backend);
    runtime.shutdown_timeout(Duration::from_secs(10));
    outcome?;
    killed::reap_orphans()?;
    before.wait_until_restored(setup, &dirs)
}

/// The requests that are sent to a box, in turn.
fn spec(host: &Host, number: usize) -> BoxSpec {
    let networked = number % 2 == 1 && host.network;
    let network = if networked { Network::On } else { Network::Off };
    BoxSpec::new()
        .network(network)
        .read_only_root(number.is_multiple_of(3))
}

async fn one(fixture: &Fixture, number: usize) -> anyhow::Result<()> {
    let test_box = fixture.start(&spec(fixture.host(), number)).await?;
    let text = test_box
        .stdout_of("echo $((40 + 2)); (sleep 300 &) >/dev/null 2>&1")
        .await?;
    ensure!(text == "42\n", "box {number} printed {text:?}");
    if fixture.host().has_feature(Feature::Files) {
        test_box.write("/workspace/file", b"x").await?;
    }
    if fixture.host().has_feature(Feature::LiveMounts) {
        let joining = fixture.host_dir("joining")?;
        test_box
            .mount(&joining, "/workspace/.skills/one", MountMode::Ro)
            .await?;
    }
    test_box
        .stop()
        .await
        .with_context(|| format!("stopping box {number}"))
}

fn cycles<S: BackendSetup>(setup: &S, counts: LeakCounts) -> anyhow::Result<()> {
    let orphans = setup.orphans();
    around(setup, |fixture| async move {
        let count = counts.cycles;
        // The first ones fill pools and caches; what grows after that is a leak.
        for number in 0..count.min(10) {
            one(&fixture, number).await?;
        }
        let early = quiet(orphans).await?;
        for number in 10..count {
            one(&fixture, number)
                .await
                .with_context(|| format!("cycle {number} of {count}"))?;
        }
        // While the backend runs, nothing may have grown with the number of boxes.
        let began = Instant::now();
        loop {
            let late = quiet(orphans).await?;
            let grown: Vec<String> = late
                .counts()
                .into_iter()
                .filter(|(kind, count)| *count > early.counts().get(kind).copied().unwrap_or(0) + 4)
                .map(|(kind, count)| format!("{kind}: {count}, was {:?}", early.counts().get(kind)))
                .collect();
            if grown.is_empty() {
                return Ok(());
            }
            ensure!(
                began.elapsed() < SETTLE_TIMEOUT,
                "grown while running: {grown:?}\n  {}",
                late.beyond(&early).join("\n  ")
            );
        }
    })
}

/// A footprint after a short pause.
async fn quiet(orphans: &[&str]) -> anyhow::Result<Footprint> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    Footprint::reap(orphans);
    Footprint::take(&[])
}

fn crowd<S: BackendSetup>(setup: &S, counts: LeakCounts) -> anyhow::Result<()> {
    around(setup, |fixture| async move {
        let count = counts.crowd;
        let mut starting = tokio::task::JoinSet::new();
        // Sixteen starts at a time; in the end all boxes run together.
        let permits = Arc::new(tokio::sync::Semaphore::new(16));
        for number in 0..count {
            let (fixture, permits) = (Arc::clone(&fixture), Arc::clone(&permits));
            starting.spawn(async move {
                let _permit = permits.acquire().await?;
                let test_box = fixture
                    .start(&spec(fixture.host(), number))
                    .await
                    .with_context(|| format!("box {number} of {count}"))?;
                test_box.assert_responsive().await?;
                anyhow::Ok(test_box)
            });
        }
        let mut boxes = Vec::new();
        while let Some(started) = starting.join_next().await {
            boxes.push(started??);
        }
        ensure!(boxes.len() == count);
        for test_box in &boxes {
            test_box.assert_responsive().await?;
        }
        let mut stopping = tokio::task::JoinSet::new();
        for test_box in boxes {
            stopping.spawn(async move { test_box.stop().await });
        }
        while let Some(stopped) = stopping.join_next().await {
            stopped??;
        }
        Ok(())
    })
}

fn interrupted<S: BackendSetup>(setup: &S, counts: LeakCounts) -> anyhow::Result<()> {
    around(setup, |fixture| async move {
        let step = counts.longest_timeout / u32::try_from(counts.interrupted)?;
        let mut timeout = Duration::ZERO;
        for number in 0..counts.interrupted {
            let spec = spec(fixture.host(), number).admit("interrupted")?;
            let silent = Progress::silent();
            let recorder = boxwood_backend::StartRecorder::none();
            let starting = fixture.backend().start(&spec, &silent, &recorder);
            timeout += step;
            if let Ok(Ok(sandbox)) = tokio::time::timeout(timeout, starting).await {
                sandbox.stop().await?;
            }
        }
        // The boxes of cancelled starts are removed in the background.
        tokio::time::sleep(Duration::from_secs(2)).await;
        one(&fixture, 0).await
    })
}

fn abandoned<S: BackendSetup>(setup: &S, _: LeakCounts) -> anyhow::Result<()> {
    around(setup, |fixture| async move {
        for number in 0..6 {
            let test_box = fixture.start(&spec(fixture.host(), number)).await?;
            // The box is dropped while this process runs.
            test_box.stdout_of("(sleep 300 &) >/dev/null 2>&1").await?;
        }
        Ok(())
    })
}
