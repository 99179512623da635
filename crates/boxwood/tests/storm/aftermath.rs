//! What is on the machine, in the ledger and in the daemon's own list: the same.

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

use crate::chance::Chance;
use crate::house::{Daemon, House};
use crate::storm::Storm;

/// The kernel takes network namespaces apart in its own time, one after the other.
const PATIENCE: Duration = Duration::from_mins(2);
const OURS: [&str; 2] = ["boxwood-init", "boxwood-spawn"];

/// One storm at a time, also where all tests are threads of one process.
static ALONE: Mutex<()> = Mutex::new(());

/// Takes the footprint of the machine before and after. In between is a storm.
pub(crate) fn survive(
    test: &str,
    house: &House,
    weather: impl AsyncFnOnce(&mut Storm<'_>, Daemon) -> anyhow::Result<Daemon>,
) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Footprint::claim_orphans().expect("orphans are ours to see");
    let undertaker = Undertaker::start();
    let outcome = (|| {
        in_runtime(async {
            // What the first daemon leaves for good is no leak: its state, and rules of the machine.
            let mut daemon = house.start();
            daemon.ready().await?;
            let status = daemon.stop().await?;
            ensure!(status.success(), "the daemon ends with {status}");
            Ok(())
        })?;
        let places: Vec<PathBuf> = house.places();
        let before = Footprint::take(&places)?;
        in_runtime(async {
            let chance = Chance::begin(test);
            let (mut storm, daemon) = Storm::gather(house, chance).await?;
            let daemon = weather(&mut storm, daemon).await?;
            storm.calm().await?;
            let incarnations = storm.incarnations;
            daemon.kill().await?;
            written_and_living(house, &incarnations).await?;
            let mut daemon = house.start();
            daemon.ready().await?;
            let status = daemon.stop().await?;
            ensure!(status.success(), "the last daemon ends with {status}");
            Ok(())
        })?;
        settle(&before, &places, PATIENCE)
    })();
    drop(undertaker);
    if let Err(error) = outcome {
        panic!(
            "{error:#}\nthe daemons' last words:\n{}",
            house.last_words()
        );
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

/// With no daemon there: the ledger has these sessions, and there is one box for each.
async fn written_and_living(
    house: &House,
    incarnations: &BTreeMap<String, u64>,
) -> anyhow::Result<()> {
    let (ledger, opened) = Ledger::open(&house.state().join("ledger.db")).await?;
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

/// The process namespaces of every box that hangs on this test: an orphan's new parent is this process.
fn boxes() -> BTreeSet<PathBuf> {
    let own = fs::read_link("/proc/self/ns/pid").ok();
    inits()
        .filter_map(|pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok())
        .filter(|namespace| Some(namespace) != own.as_ref())
        .collect()
}

/// First processes of boxes that hang on this test.
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

/// Orphans that ended are waited for by their new parent, as a machine's first process would.
struct Undertaker {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Undertaker {
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

impl Drop for Undertaker {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}
