//! Runs a test, and checks that it leaves nothing on the machine and that the ledger matches the boxes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::ensure;
use boxwood_ledger::Ledger;
use boxwood_suites::{Footprint, settle};

use crate::instance::{Daemon, Instance};
use crate::random::Random;
use crate::storm::Storm;

/// The kernel removes network namespaces asynchronously, one after another.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(2);
const OURS: [&str; 2] = ["boxwood-init", "boxwood-spawn"];

/// One test at a time, even if all tests are threads of one process.
static LOCK: Mutex<()> = Mutex::new(());

/// Compares the footprint of the machine before and after the scenario.
pub(crate) fn survive(
    test: &str,
    instance: &Instance,
    scenario: impl AsyncFnOnce(&mut Storm<'_>, Daemon) -> anyhow::Result<Daemon>,
) {
    let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    Footprint::claim_orphans().expect("this process becomes the parent of orphans");
    let reaper = Reaper::start();
    let outcome = (|| {
        in_runtime(async {
            // The first daemon creates its state and firewall rules, which are permanent and no leak.
            let mut daemon = instance.start();
            daemon.ready().await?;
            let status = daemon.stop().await?;
            ensure!(status.success(), "the daemon ends with {status}");
            Ok(())
        })?;
        let directories: Vec<PathBuf> = instance.directories();
        let before = Footprint::take(&directories)?;
        in_runtime(async {
            let random = Random::begin(test);
            let (mut storm, daemon) = Storm::gather(instance, random).await?;
            let daemon = scenario(&mut storm, daemon).await?;
            storm.finish().await?;
            let incarnations = storm.incarnations;
            daemon.kill().await?;
            check_ledger_and_boxes(instance, &incarnations).await?;
            let mut daemon = instance.start();
            daemon.ready().await?;
            let status = daemon.stop().await?;
            ensure!(status.success(), "the last daemon ends with {status}");
            Ok(())
        })?;
        settle(&before, &directories, SETTLE_TIMEOUT)
    })();
    drop(reaper);
    if let Err(error) = outcome {
        panic!("{error:#}\nend of the log:\n{}", instance.log_tail());
    }
}

fn in_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(10));
    outcome
}

/// While no daemon runs: the ledger has exactly these sessions, and there is one box for each.
async fn check_ledger_and_boxes(
    instance: &Instance,
    incarnations: &BTreeMap<String, u64>,
) -> anyhow::Result<()> {
    let (ledger, opened) = Ledger::open(&instance.state().join("ledger.db")).await?;
    let rows = ledger.rows().await?;
    let written: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (row.session.to_string(), row.incarnation))
        .collect();
    ledger.close().await;
    ensure!(
        written == *incarnations && rows.len() == written.len(),
        "the ledger ({opened:?}) has {written:?}, and there are {incarnations:?}"
    );
    let boxes = boxes();
    ensure!(
        boxes.len() == incarnations.len(),
        "{} sessions have {} boxes",
        incarnations.len(),
        boxes.len()
    );
    Ok(())
}

/// The PID namespaces of all boxes of this test. Orphans become children of this process.
fn boxes() -> BTreeSet<PathBuf> {
    let own = fs::read_link("/proc/self/ns/pid").ok();
    inits()
        .filter_map(|pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok())
        .filter(|namespace| Some(namespace) != own.as_ref())
        .collect()
}

/// The pids of the inits of all boxes of this test.
pub(crate) fn inits() -> impl Iterator<Item = i32> {
    let us = std::process::id();
    let processes = fs::read_dir("/proc").expect("proc is there").flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(move |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let Some((name, rest)) = stat.rsplit_once(')') else {
                return false;
            };
            let mut fields = rest.split_whitespace();
            let (state, parent) = (fields.next(), fields.next());
            name.ends_with("(boxwood-init")
                && state != Some("Z")
                && parent == Some(us.to_string().as_str())
        })
}

/// Reaps orphans, as the PID 1 of the machine would.
struct Reaper {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Acquire) {
                Footprint::reap(&OURS);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}
