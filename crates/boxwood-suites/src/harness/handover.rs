//! Several daemons, one after the other, on the same boxes.
//!
//! A [`Scenario`] has two halves. A second process of the test program runs the first half, and is then killed or
//! detaches its boxes. The test itself runs the second half with a backend on the same directories.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::future::LocalBoxFuture;
use libtest_mimic::Trial;

use crate::{BackendSetup, Feature, Fixture, StateDirs, TestBox, failed, runtime};
use boxwood_backend::{Adopted, KeptProcess, Process};

/// Environment variables of an earlier daemon: its state directory, and what it runs: a scenario or `BETWEEN`.
const STATE_DIR: &str = "BOXWOOD_SUITE_FIRST";
const PART: &str = "BOXWOOD_SUITE_PART";
/// A daemon between the first and the last one, which only adopts the boxes.
const BETWEEN: &str = "between";
const READY: &str = "everything is running";
/// Time limit of a second half.
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Feature],
    /// True if a daemon in between can adopt the boxes without changing them.
    pub(crate) allows_intermediate_daemon: bool,
    pub(crate) before: fn(&Fixture) -> LocalBoxFuture<'_, anyhow::Result<Vec<Process>>>,
    pub(crate) after: fn(&Fixture) -> LocalBoxFuture<'_, anyhow::Result<()>>,
}

/// An adopted box, its record and its programs.
pub(crate) struct Found {
    pub(crate) test_box: TestBox,
    pub(crate) record: Vec<u8>,
    pub(crate) processes: Vec<KeptProcess>,
}

impl Found {
    /// Removes and returns the program with this note.
    pub(crate) fn take(&mut self, note: &str) -> anyhow::Result<KeptProcess> {
        let index = self
            .processes
            .iter()
            .position(|kept| kept.note == note.as_bytes());
        let index = index.with_context(|| format!("no program was kept as {note:?}"))?;
        Ok(self.processes.swap_remove(index))
    }
}

/// Adopts every box that is left, and removes the rest.
pub(crate) async fn adopt_all(fixture: &Fixture) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    for handle in fixture.backend().left_running().await {
        let adopting = fixture.backend().adopt(&handle);
        let Adopted {
            sandbox,
            record,
            processes,
        } = adopting.await.context("adopting a box")?;
        found.push(Found {
            test_box: fixture.hold(sandbox),
            record,
            processes,
        });
    }
    fixture.backend().finish_adoption().await;
    Ok(found)
}

/// Like [`adopt_all`] for exactly one box.
pub(crate) async fn adopt_one(fixture: &Fixture) -> anyhow::Result<Found> {
    let mut found = adopt_all(fixture).await?;
    ensure!(found.len() == 1, "{} boxes were left", found.len());
    found.pop().context("no box was left")
}

/// How a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    Detached,
}

pub(crate) fn trials<S: BackendSetup>(setup: &Arc<S>, scenarios: Vec<Scenario>) -> Vec<Trial> {
    let host = setup.host().ok();
    let trial = |scenario: Scenario| {
        let missing_feature = host.as_ref().and_then(|host| {
            let mut needs = [Feature::Adoption]
                .into_iter()
                .chain(scenario.needs.iter().copied());
            needs.find(|need| !host.has_feature(*need))
        });
        let setup = Arc::clone(setup);
        let trial = Trial::test(format!("adoption::{}", scenario.name), move || {
            run(setup.as_ref(), &scenario).map_err(|error| failed(&error))
        });
        match missing_feature {
            None => trial,
            Some(feature) => trial
                .with_kind(format!("not offered: {}", feature.name()))
                .with_ignored_flag(true),
        }
    };
    scenarios.into_iter().map(trial).collect()
}

fn run(setup: &dyn BackendSetup, scenario: &Scenario) -> anyhow::Result<()> {
    let mut orders = vec![vec![End::Killed], vec![End::Detached]];
    if scenario.allows_intermediate_daemon {
        orders.push(vec![End::Killed, End::Killed]);
    }
    for ends in orders {
        run_in_sequence(setup, scenario, &ends)
            .with_context(|| format!("with earlier daemons that end like this: {ends:?}"))?;
    }
    Ok(())
}

fn run_in_sequence(
    setup: &dyn BackendSetup,
    scenario: &Scenario,
    ends: &[End],
) -> anyhow::Result<()> {
    let dirs = StateDirs::make()?;
    for (number, end) in ends.iter().enumerate() {
        let part = if number == 0 { scenario.name } else { BETWEEN };
        daemon(&dirs, part, *end)?;
    }
    let backend = setup.launch(&dirs)?;
    let runtime = runtime()?;
    let host = setup.host()?;
    let outcome = runtime.block_on(async {
        let fixture = Fixture::new(backend, host)?;
        let after = tokio::time::timeout(LIMIT, (scenario.after)(&fixture));
        let outcome = after.await.context("the second half timed out");
        let closed = fixture.close().await;
        outcome.and_then(|outcome| outcome).and(closed)
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

/// Runs an earlier daemon until it is killed or has detached its boxes.
fn daemon(dirs: &StateDirs, part: &str, end: End) -> anyhow::Result<()> {
    let mut daemon = Command::new(std::env::current_exe()?)
        .env(STATE_DIR, dirs.directory())
        .env(PART, part)
        // A killed daemon leaves its scratch directory, which is removed with the state directory.
        .env("TMPDIR", dirs.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting an earlier daemon")?;
    let ready = until_ready(&mut daemon);
    if ready.is_err() || end == End::Killed {
        daemon.kill()?;
        daemon.wait()?;
        return ready;
    }
    // Closing its input makes it detach.
    drop(daemon.stdin.take());
    let status = daemon.wait()?;
    ensure!(
        status.success(),
        "the daemon that detached its boxes ended with {status}"
    );
    Ok(())
}

fn until_ready(daemon: &mut Child) -> anyhow::Result<()> {
    let Some(stdout) = daemon.stdout.take() else {
        bail!("the daemon has no standard output")
    };
    let line = BufReader::new(stdout).lines().next().transpose()?;
    let line = line.unwrap_or_default();
    ensure!(line == READY, "the daemon printed {line:?}");
    Ok(())
}

/// Does not return in a process that was started as an earlier daemon.
pub(crate) fn run_as_earlier_daemon_if_requested(setup: &dyn BackendSetup, scenarios: &[Scenario]) {
    let (Some(directory), Ok(part)) = (std::env::var_os(STATE_DIR), std::env::var(PART)) else {
        return;
    };
    let dirs = StateDirs::of(PathBuf::from(directory));
    let outcome = match scenarios.iter().find(|scenario| scenario.name == part) {
        Some(scenario) => serve(setup, &dirs, scenario.before),
        None => serve(setup, &dirs, |fixture| Box::pin(adopt_and_keep(fixture))),
    };
    if let Err(error) = &outcome {
        eprintln!("the daemon failed: {error:#}");
    }
    std::process::exit(i32::from(outcome.is_err()))
}

async fn adopt_and_keep(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let found = adopt_all(fixture).await?;
    let mut processes = Vec::new();
    for Found {
        test_box,
        record,
        processes: kept,
    } in found
    {
        test_box.sandbox().remember(&record).await?;
        processes.extend(kept.into_iter().map(|kept| kept.process));
    }
    Ok(processes)
}

/// Runs a first half, prints `READY`, and waits to be killed or to detach.
fn serve(
    setup: &dyn BackendSetup,
    dirs: &StateDirs,
    half: fn(&Fixture) -> LocalBoxFuture<'_, anyhow::Result<Vec<Process>>>,
) -> anyhow::Result<()> {
    let host = setup.host()?;
    let backend = setup.launch(dirs)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let fixture = Fixture::new(backend, host)?;
        let processes = half(&fixture).await?;
        println!("{READY}");
        std::io::stdout().flush()?;
        let end = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
        end.await?;
        fixture.detach_boxes().await;
        drop(processes);
        Ok(())
    })
}
