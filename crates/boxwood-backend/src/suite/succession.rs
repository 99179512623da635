//! One daemon after the other on the same boxes.
//!
//! Comes in: a [`Scenario`] in two halves. Goes out: named tests. The first half is carried out by the
//! test's own program, run once more, which is then killed or lets go of everything; the second by the
//! test itself, which launches a backend on the same directories. Never here: what a half is about.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::future::LocalBoxFuture;
use libtest_mimic::Trial;

use super::{Bench, HeldBox, Offer, Places, Subject, failed, runtime};
use crate::{Adopted, KeptProcess, Process};

/// Where the daemon's state is, and which half it carries out. Set in the first daemon alone.
const PLACES: &str = "BOXWOOD_SUITE_FIRST";
const PART: &str = "BOXWOOD_SUITE_PART";
/// The part of a daemon that only takes over what another made.
const BETWEEN: &str = "between";
const READY: &str = "everything is running";
/// For a second half to come to its end.
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Offer],
    /// Whether daemons in between may take everything over as it is.
    pub(crate) may_pass_on: bool,
    pub(crate) before: fn(&Bench) -> LocalBoxFuture<'_, anyhow::Result<Vec<Process>>>,
    pub(crate) after: fn(&Bench) -> LocalBoxFuture<'_, anyhow::Result<()>>,
}

/// A box that was taken over, and what of it was kept.
pub(crate) struct Found {
    pub(crate) held: HeldBox,
    pub(crate) record: Vec<u8>,
    pub(crate) processes: Vec<KeptProcess>,
}

impl Found {
    /// The one with this note, once.
    pub(crate) fn take(&mut self, note: &str) -> anyhow::Result<KeptProcess> {
        let at = self
            .processes
            .iter()
            .position(|kept| kept.note == note.as_bytes());
        let at = at.with_context(|| format!("no program was kept as {note:?}"))?;
        Ok(self.processes.swap_remove(at))
    }
}

/// Takes over every box that is left, and clears the rest away.
pub(crate) async fn adopt_all(bench: &Bench) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    for handle in bench.backend().left_running().await {
        let adopting = bench.backend().adopt(&handle);
        let Adopted {
            sandbox,
            record,
            processes,
        } = adopting.await.context("taking a box over")?;
        found.push(Found {
            held: bench.hold(sandbox),
            record,
            processes,
        });
    }
    bench.backend().settle().await;
    Ok(found)
}

/// The same where there is one box.
pub(crate) async fn adopt_one(bench: &Bench) -> anyhow::Result<Found> {
    let mut found = adopt_all(bench).await?;
    ensure!(found.len() == 1, "{} boxes were left", found.len());
    found.pop().context("no box was left")
}

/// How a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    LetsGo,
}

pub(super) fn trials<S: Subject>(subject: &Arc<S>, scenarios: Vec<Scenario>) -> Vec<Trial> {
    let host = subject.host().ok();
    let trial = |scenario: Scenario| {
        let not_offered = host.as_ref().and_then(|host| {
            let mut needs = [Offer::Adoption]
                .into_iter()
                .chain(scenario.needs.iter().copied());
            needs.find(|need| !host.offers(*need))
        });
        let subject = Arc::clone(subject);
        let trial = Trial::test(format!("adoption::{}", scenario.name), move || {
            run(subject.as_ref(), &scenario).map_err(|error| failed(&error))
        });
        match not_offered {
            None => trial,
            Some(offer) => trial
                .with_kind(format!("not offered: {}", offer.name()))
                .with_ignored_flag(true),
        }
    };
    scenarios.into_iter().map(trial).collect()
}

fn run(subject: &dyn Subject, scenario: &Scenario) -> anyhow::Result<()> {
    let mut orders = vec![vec![End::Killed], vec![End::LetsGo]];
    if scenario.may_pass_on {
        orders.push(vec![End::Killed, End::Killed]);
    }
    for ends in orders {
        one_after_the_other(subject, scenario, &ends)
            .with_context(|| format!("with daemons that end like this: {ends:?}"))?;
    }
    Ok(())
}

fn one_after_the_other(
    subject: &dyn Subject,
    scenario: &Scenario,
    ends: &[End],
) -> anyhow::Result<()> {
    let places = Places::make()?;
    for (number, end) in ends.iter().enumerate() {
        let part = if number == 0 { scenario.name } else { BETWEEN };
        daemon(&places, part, *end)?;
    }
    let backend = subject.launch(&places)?;
    let runtime = runtime()?;
    let host = subject.host()?;
    let outcome = runtime.block_on(async {
        let bench = Bench::new(backend, host)?;
        let after = tokio::time::timeout(LIMIT, (scenario.after)(&bench));
        let outcome = after.await.context("no end of it");
        let closed = bench.close().await;
        outcome.and_then(|outcome| outcome).and(closed)
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

/// Runs a daemon through its part, to its end.
fn daemon(places: &Places, part: &str, end: End) -> anyhow::Result<()> {
    let mut daemon = Command::new(std::env::current_exe()?)
        .env(PLACES, places.directory())
        .env(PART, part)
        // A killed one leaves its scratch directory; it goes with the others.
        .env("TMPDIR", places.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a daemon of the test's own")?;
    let ready = until_ready(&mut daemon);
    if ready.is_err() || end == End::Killed {
        daemon.kill()?;
        daemon.wait()?;
        return ready;
    }
    // The end of its input is its order to let go.
    drop(daemon.stdin.take());
    let status = daemon.wait()?;
    ensure!(
        status.success(),
        "the daemon that let go ended with {status}"
    );
    Ok(())
}

fn until_ready(daemon: &mut Child) -> anyhow::Result<()> {
    let Some(stdout) = daemon.stdout.take() else {
        bail!("the daemon has no standard output")
    };
    let said = BufReader::new(stdout).lines().next().transpose()?;
    let said = said.unwrap_or_default();
    ensure!(said == READY, "the daemon said {said:?}");
    Ok(())
}

/// Does not return in a process that was started as an earlier daemon.
pub(super) fn be_the_first_if_asked(subject: &dyn Subject, scenarios: &[Scenario]) {
    let (Some(directory), Ok(part)) = (std::env::var_os(PLACES), std::env::var(PART)) else {
        return;
    };
    let places = Places::of(PathBuf::from(directory));
    let outcome = match scenarios.iter().find(|scenario| scenario.name == part) {
        Some(scenario) => serve(subject, &places, scenario.before),
        None => serve(subject, &places, |bench| Box::pin(pass_on(bench))),
    };
    if let Err(error) = &outcome {
        eprintln!("the daemon failed: {error:#}");
    }
    std::process::exit(i32::from(outcome.is_err()))
}

async fn pass_on(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let found = adopt_all(bench).await?;
    let mut processes = Vec::new();
    for Found {
        held,
        record,
        processes: kept,
    } in found
    {
        held.sandbox().remember(&record).await?;
        processes.extend(kept.into_iter().map(|kept| kept.process));
    }
    Ok(processes)
}

/// Carries out a first half, says so, and waits to be killed or told to let go.
fn serve(
    subject: &dyn Subject,
    places: &Places,
    half: fn(&Bench) -> LocalBoxFuture<'_, anyhow::Result<Vec<Process>>>,
) -> anyhow::Result<()> {
    let host = subject.host()?;
    let backend = subject.launch(places)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let bench = Bench::new(backend, host)?;
        let processes = half(&bench).await?;
        println!("{READY}");
        std::io::stdout().flush()?;
        let end = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
        end.await?;
        bench.let_go().await;
        drop(processes);
        Ok(())
    })
}
