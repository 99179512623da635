//! One box among a thousand.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::super::Effort;
use super::super::clients::http::Connection;
use super::super::daemon::Daemon;
use super::super::exec::{exec_true, warm_session};
use super::super::idle::{Snapshot, create};
use super::super::measure::sample::Samples;
use super::super::measure::table::{Measured, Row};

const MANY: u32 = 1000;
const EXECS: usize = 500;
const CREATES: usize = 100;

/// As in the row against `bwrap`: the daemon needs time to replace a prewarmed box.
const APART: Duration = Duration::from_millis(60);
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn rows(binary: &Path, effort: Effort) -> Vec<Row> {
    let mut note = String::new();
    let (exec, create) = match measure(binary, effort, &mut note) {
        Ok(measured) => measured,
        Err(error) => (Measured::unknown(&error), Measured::unknown(&error)),
    };
    vec![
        Row {
            what: "warm exec of `true`, 1,000 boxes alive",
            against: "the same, one box alive",
            at_most: Some(1.5),
            result: exec,
            note,
        },
        Row {
            what: "create + first exec + delete, 1,000 boxes alive",
            against: "the same, one box alive",
            at_most: Some(2.0),
            result: create,
            note: String::new(),
        },
    ]
}

fn measure(binary: &Path, effort: Effort, note: &mut String) -> Result<(Measured, Measured)> {
    // The same session in both daemons; they differ only by the other boxes.
    let (lonely, crowded) = (Daemon::start(binary)?, Daemon::start(binary)?);
    std::thread::sleep(SETTLE);
    let before = Snapshot::take(&crowded)?;
    let started = Instant::now();
    create(&crowded, "bench-crowd", MANY)?;
    let took = started.elapsed();
    std::thread::sleep(SETTLE);
    let after = Snapshot::take(&crowded)?;
    *note = format!(
        "made and used once each at {:.0} a second; {:.0} KiB of private memory a box, and {:.0} KiB of \
         the daemon's",
        f64::from(MANY) / took.as_secs_f64(),
        (after.boxes_kib() - before.boxes_kib()) / f64::from(MANY),
        (after.daemon_kib() - before.daemon_kib()) / f64::from(MANY),
    );

    let mut alone = warm_session(&lonely)?;
    let mut among = warm_session(&crowded)?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..effort.of(EXECS) {
        theirs.time(|| exec_true(&mut alone))?;
        ours.time(|| exec_true(&mut among))?;
    }
    let exec = Measured::times(&ours, &theirs);

    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..effort.of(CREATES) {
        std::thread::sleep(APART);
        theirs.time(|| one_life(&mut alone))?;
        std::thread::sleep(APART);
        ours.time(|| one_life(&mut among))?;
    }
    Ok((exec, Measured::times(&ours, &theirs)))
}

fn one_life(connection: &mut Connection) -> Result<()> {
    const SESSION: &str = "/v1/sessions/bench-one-life";
    connection.call("POST", SESSION, "{}", 201)?;
    let answer = connection.call("POST", &format!("{SESSION}/exec"), r#"{"cmd":"true"}"#, 200)?;
    ensure!(
        answer.contains(r#""exit_code":0"#),
        "`true` did not succeed: {answer}"
    );
    connection.call("DELETE", SESSION, "", 200)?;
    Ok(())
}
