//! What is on the host before a backend starts and after it has shut down: the same.
//!
//! Comes in: a [`Subject`], and how much of everything to do. Goes out: named tests about processes,
//! mounts, cgroups, namespaces, links, firewall rules, forwarding, descriptors, files, and what an engine
//! has in its own books. Never here: the backend's word on what it removed.

mod killed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::{MountMode, Network};
use libtest_mimic::Trial;

use super::{
    Bench, Footprint, HeldBox, Host, Offer, Places, Subject, Wish, conclude, failed, runtime,
};
use crate::Progress;

/// The kernel takes network namespaces apart in its own time, one after the other.
const PATIENCE: Duration = Duration::from_mins(1);

/// How much of everything. Boxes that take a second to start find the same leaks with fewer.
#[derive(Clone, Copy, Debug)]
pub struct LeakCounts {
    /// Boxes made, used and removed, one after the other.
    pub cycles: usize,
    /// Boxes alive at once.
    pub crowd: usize,
    /// Starts whose caller goes away, each a little later than the one before.
    pub interrupted: usize,
    /// How long the last of those callers stays. Long enough for a start to succeed.
    pub longest_patience: Duration,
}

type Body<S> = fn(&S, LeakCounts) -> anyhow::Result<()>;

/// The leak checks. Ends the process.
pub fn run_leaks<S: Subject>(subject: S, counts: LeakCounts) -> ! {
    killed::be_the_daemon_if_asked(&subject);
    let subject = Arc::new(subject);
    let test = |name: &str, body: Body<S>| {
        let subject = Arc::clone(&subject);
        Trial::test(name, move || {
            body(&subject, counts).map_err(|error| failed(&error))
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
    let adopts = |host: Host| host.offers(Offer::Adoption);
    if subject.host().is_ok_and(adopts) {
        trials.push(test("leaks::adopted_boxes_leave_nothing", adopted));
    }
    conclude(trials)
}

/// Footprint, launch, work, shutdown, footprint.
fn around<F>(subject: &dyn Subject, work: impl FnOnce(Arc<Bench>) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    Footprint::claim_orphans()?;
    let places = Places::make()?;
    let host = subject.host()?;
    prime(subject, &places)?;
    let before = Sight::take(subject, &places)?;
    let backend = subject.launch(&places)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let bench = Arc::new(Bench::new(Arc::clone(&backend), host)?);
        let outcome = work(Arc::clone(&bench)).await;
        drop(bench);
        backend.shutdown().await;
        outcome
    });
    drop(backend);
    runtime.shutdown_timeout(Duration::from_secs(10));
    outcome?;
    before.comes_back(subject, &places)
}

/// The host and the engine's books, at one moment.
struct Sight {
    footprint: Footprint,
    books: Vec<String>,
}

impl Sight {
    fn take(subject: &dyn Subject, places: &Places) -> anyhow::Result<Self> {
        Footprint::bury(subject.orphans());
        Ok(Self {
            footprint: Footprint::take(&places.all())?,
            books: subject.books()?,
        })
    }

    /// The kernel removes namespaces and links in its own time, an engine its containers, and other
    /// programs of the machine come and go; a leak is what stays.
    fn comes_back(&self, subject: &dyn Subject, places: &Places) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let now = Self::take(subject, places)?;
            let mut left = now.footprint.beyond(&self.footprint);
            let mut booked = now.books;
            booked.retain(|entry| !self.books.contains(entry));
            left.extend(booked.iter().map(|entry| format!("in the engine: {entry}")));
            if left.is_empty() {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{} left behind:\n  {}",
                left.len(),
                left.join("\n  ")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A first run, so that what is made once and kept on purpose is there before the count: the lock
/// in the state directory, and the runtime's own pair of sockets for signals.
fn prime(subject: &dyn Subject, places: &Places) -> anyhow::Result<()> {
    subject.warm_up()?;
    let backend = subject.launch(places)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        backend.settle().await;
        backend.shutdown().await;
    });
    drop(backend);
    runtime.shutdown_timeout(Duration::from_secs(10));
    Ok(())
}

fn idle<S: Subject>(subject: &S, _: LeakCounts) -> anyhow::Result<()> {
    around(subject, |_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(())
    })
}

/// Boxes of a daemon that was killed: what is left is its successor's to clear away.
fn killed_daemon<S: Subject>(subject: &S, _: LeakCounts) -> anyhow::Result<()> {
    Footprint::claim_orphans()?;
    let places = Places::make()?;
    prime(subject, &places)?;
    let before = Sight::take(subject, &places)?;
    for _ in 0..3 {
        killed::run_and_kill(&places)?;
    }
    // One that does nothing but begin and end.
    prime(subject, &places)?;
    killed::reap_orphans()?;
    before.comes_back(subject, &places)
}

/// Boxes of a killed daemon, some of which its successor takes over and stops.
fn adopted<S: Subject>(subject: &S, _: LeakCounts) -> anyhow::Result<()> {
    Footprint::claim_orphans()?;
    let places = Places::make()?;
    prime(subject, &places)?;
    let before = Sight::take(subject, &places)?;
    killed::run_and_kill(&places)?;
    let backend = subject.launch(&places)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let mut boxes = Vec::new();
        // One without a network and one with, where there is any.
        for handle in backend.left_running().await.iter().skip(2) {
            let adopted = backend.adopt(handle).await.context("taking a box over")?;
            boxes.push(HeldBox::new(adopted.sandbox));
        }
        ensure!(boxes.len() == killed::BOXES - 2, "{} boxes", boxes.len());
        backend.settle().await;
        for held in &boxes {
            held.is_well().await?;
            held.stop().await?;
        }
        backend.shutdown().await;
        Ok(())
    });
    drop(backend);
    runtime.shutdown_timeout(Duration::from_secs(10));
    outcome?;
    killed::reap_orphans()?;
    before.comes_back(subject, &places)
}

/// What a box can be asked for, in turn.
fn wish(host: &Host, number: usize) -> Wish {
    let networked = number % 2 == 1 && host.network;
    let network = if networked { Network::On } else { Network::Off };
    Wish::new()
        .network(network)
        .read_only_root(number.is_multiple_of(3))
}

async fn one(bench: &Bench, number: usize) -> anyhow::Result<()> {
    let held = bench.start(&wish(bench.host(), number)).await?;
    let said = held
        .says("echo $((40 + 2)); (sleep 300 &) >/dev/null 2>&1")
        .await?;
    ensure!(said == "42\n", "box {number} said {said:?}");
    if bench.host().offers(Offer::Files) {
        held.write("/workspace/file", b"x").await?;
    }
    if bench.host().offers(Offer::LiveMounts) {
        let joining = bench.host_dir("joining")?;
        held.join(&joining, "/workspace/.skills/one", MountMode::Ro)
            .await?;
    }
    held.stop()
        .await
        .with_context(|| format!("stopping box {number}"))
}

fn cycles<S: Subject>(subject: &S, counts: LeakCounts) -> anyhow::Result<()> {
    let orphans = subject.orphans();
    around(subject, |bench| async move {
        let count = counts.cycles;
        // The first ones fill pools and caches; what grows after that is a leak.
        for number in 0..10 {
            one(&bench, number).await?;
        }
        let early = quiet(orphans).await?;
        for number in 10..count {
            one(&bench, number)
                .await
                .with_context(|| format!("cycle {number} of {count}"))?;
        }
        // In its steady state, before any shutdown: nothing may have grown with the boxes.
        let began = Instant::now();
        loop {
            let late = quiet(orphans).await?;
            let grown: Vec<String> = late
                .counts()
                .into_iter()
                .filter(|(kind, now)| *now > early.counts().get(kind).copied().unwrap_or(0) + 4)
                .map(|(kind, now)| format!("{kind}: {now}, was {:?}", early.counts().get(kind)))
                .collect();
            if grown.is_empty() {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "grown while running: {grown:?}\n  {}",
                late.beyond(&early).join("\n  ")
            );
        }
    })
}

/// A footprint after a moment's rest.
async fn quiet(orphans: &[&str]) -> anyhow::Result<Footprint> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    Footprint::bury(orphans);
    Footprint::take(&[])
}

fn crowd<S: Subject>(subject: &S, counts: LeakCounts) -> anyhow::Result<()> {
    around(subject, |bench| async move {
        let count = counts.crowd;
        let mut starting = tokio::task::JoinSet::new();
        // Sixteen at a time: all alive together in the end, as many callers would have it.
        let permits = Arc::new(tokio::sync::Semaphore::new(16));
        for number in 0..count {
            let (bench, permits) = (Arc::clone(&bench), Arc::clone(&permits));
            starting.spawn(async move {
                let _permit = permits.acquire().await?;
                let held = bench
                    .start(&wish(bench.host(), number))
                    .await
                    .with_context(|| format!("box {number} of {count}"))?;
                held.is_well().await?;
                anyhow::Ok(held)
            });
        }
        let mut boxes = Vec::new();
        while let Some(started) = starting.join_next().await {
            boxes.push(started??);
        }
        ensure!(boxes.len() == count);
        for held in &boxes {
            held.is_well().await?;
        }
        let mut stopping = tokio::task::JoinSet::new();
        for held in boxes {
            stopping.spawn(async move { held.stop().await });
        }
        while let Some(stopped) = stopping.join_next().await {
            stopped??;
        }
        Ok(())
    })
}

fn interrupted<S: Subject>(subject: &S, counts: LeakCounts) -> anyhow::Result<()> {
    around(subject, |bench| async move {
        let step = counts.longest_patience / u32::try_from(counts.interrupted)?;
        let mut patience = Duration::ZERO;
        for number in 0..counts.interrupted {
            let spec = wish(bench.host(), number).admit("interrupted")?;
            let silent = Progress::silent();
            let nobody = crate::Witness::none();
            let starting = bench.backend().start(&spec, &silent, &nobody);
            patience += step;
            if let Ok(Ok(sandbox)) = tokio::time::timeout(patience, starting).await {
                sandbox.stop().await?;
            }
        }
        // What was half made is undone behind the callers' backs; give it the time.
        tokio::time::sleep(Duration::from_secs(2)).await;
        one(&bench, 0).await
    })
}

fn abandoned<S: Subject>(subject: &S, _: LeakCounts) -> anyhow::Result<()> {
    around(subject, |bench| async move {
        for number in 0..6 {
            let held = bench.start(&wish(bench.host(), number)).await?;
            // Running, and let go of with everything else.
            held.says("(sleep 300 &) >/dev/null 2>&1").await?;
        }
        Ok(())
    })
}
