//! Prewarmed boxes and frozen sessions.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::clients::http::Connection;
use super::create::{APART, Phases, cycle};
use super::daemon::Daemon;
use super::idle::{Snapshot, create, run_true};
use super::measure::sample::Samples;
use super::measure::table::{Measured, Row};
use super::{Effort, baseline};

const POOL: &str = "4";
const FROZEN: u32 = 100;
const WITHIN: Duration = Duration::from_mins(1);

pub(super) fn create_against_bwrap(binary: &Path, effort: Effort) -> Row {
    let mut phases = Phases::default();
    let result = creates(binary, effort, &mut phases);
    Row {
        what: "create + first exec + delete from the warm pool, creates 60 ms apart",
        against: "`bwrap --unshare-all … sh -c true`",
        at_most: Some(0.5),
        result: result.unwrap_or_else(|error| Measured::unknown(&error)),
        note: format!(
            "three HTTP requests, with a pool of {POOL}; every box was ready before it was asked for. \
             The delete is answered when the kernel has removed namespaces and cgroups. Medians: {}",
            phases.text()
        ),
    }
}

fn creates(binary: &Path, effort: Effort, phases: &mut Phases) -> Result<Measured> {
    let daemon = Daemon::start_on(binary, "native", |command| {
        command.env("BOXWOOD_PROFILES__DEFAULT__WARM", POOL);
        Ok(())
    })?;
    let mut connection = daemon.connect()?;
    // The first requests fill the pool.
    for number in 0..4 {
        cycle(
            &mut connection,
            &format!("bench-first-{number}"),
            &mut Phases::default(),
        )?;
    }
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for number in 0..effort.of(150) {
        std::thread::sleep(APART);
        theirs.time(baseline::bwrap_true)?;
        wait_until(&mut connection, "warm_boxes", |ready| ready > 0)?;
        std::thread::sleep(APART);
        ours.time(|| cycle(&mut connection, &format!("bench-warm-{number}"), phases))?;
    }
    Ok(Measured::times(&ours, &theirs))
}

pub(super) fn frozen_against_awake(binary: &Path) -> Row {
    let mut note = String::new();
    let result = frozen(binary, &mut note).unwrap_or_else(|error| Measured::unknown(&error));
    Row {
        what: "frozen box, private memory of all its processes, 100 alive",
        against: "the same boxes awake",
        at_most: Some(1.05),
        result,
        note,
    }
}

/// Each box has a managed process, so that there is something to freeze.
fn frozen(binary: &Path, note: &mut String) -> Result<Measured> {
    let daemon = Daemon::start_on(binary, "native", |command| {
        command.env("BOXWOOD_SESSION__FREEZE_AFTER_SEC", "5");
        Ok(())
    })?;
    let before = Snapshot::take(&daemon)?;
    create(&daemon, "bench-frozen", FROZEN)?;
    let mut connection = daemon.connect()?;
    for worker in 0..4 {
        for number in 0..FROZEN / 4 {
            let session = format!("/v1/sessions/bench-frozen-{worker}-{number}");
            let process = r#"{"command":"sleep","args":["86400"],"cwd":"/workspace"}"#;
            connection.call("POST", &format!("{session}/managed-process"), process, 201)?;
        }
    }
    let awake = Snapshot::take(&daemon)?;
    wait_until(&mut connection, "frozen_sessions", |count| {
        count == u64::from(FROZEN)
    })?;
    // Memory is released after the freeze.
    std::thread::sleep(Duration::from_secs(2));
    let asleep = Snapshot::take(&daemon)?;
    let mut thaws = Samples::default();
    for worker in 0..4 {
        thaws.time(|| run_true(&mut connection, &format!("bench-frozen-{worker}-0")))?;
    }
    let per_box =
        |snapshot: &Snapshot| (snapshot.boxes_kib() - before.boxes_kib()) / f64::from(FROZEN);
    *note = format!(
        "each has one managed process that sleeps; the first exec in a frozen box takes {} µs, thawing \
         included",
        thaws.median().as_micros()
    );
    Ok(Measured::kibibytes(per_box(&asleep), per_box(&awake)))
}

fn wait_until(connection: &mut Connection, field: &str, holds: impl Fn(u64) -> bool) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < WITHIN {
        let status = connection.call("GET", "/v1/status", "", 200)?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let count = status[field].as_u64();
        ensure!(count.is_some(), "the status has no `{field}`");
        if count.is_some_and(&holds) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    bail!(
        "`{field}` did not reach the expected value within {} s",
        WITHIN.as_secs()
    )
}
