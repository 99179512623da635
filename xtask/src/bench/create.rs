//! Cold: create a box, run one command, delete it.
//!
//! Comes in: a daemon. Goes out: the row against `bwrap`. Never here: back-to-back creates. Some
//! costs (moving a pid between cgroups waits for a grace period) vanish in a tight loop and are
//! there for every real user, so each create stands alone.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::daemon::Daemon;
use super::http::Connection;
use super::sample::Samples;
use super::table::{Measured, Row, micros, time_text};
use super::{Effort, baseline};

pub(super) const APART: Duration = Duration::from_millis(60);

const NOTE: &str = "three HTTP requests as `serve` runs by default; bwrap sets no cgroup limit, no seccomp \
                    filter and no uid range. The aim from the warm pool is 0.50 ×";

pub(super) fn against_bwrap(daemon: &Daemon, effort: Effort) -> Row {
    let mut phases = Phases::default();
    let result =
        measure(daemon, effort, &mut phases).unwrap_or_else(|error| Measured::unknown(&error));
    Row {
        what: "create + first exec + delete, creates 60 ms apart",
        against: "`bwrap --unshare-all … sh -c true`",
        at_most: Some(1.0),
        result,
        note: format!("{NOTE}. Medians: {}", phases.text()),
    }
}

/// Where the time goes.
#[derive(Default)]
pub(super) struct Phases {
    create: Samples,
    exec: Samples,
    delete: Samples,
}

impl Phases {
    pub(super) fn text(&self) -> String {
        let median = |samples: &Samples| time_text(micros(samples.median()));
        format!(
            "create {}, first exec {}, delete {}",
            median(&self.create),
            median(&self.exec),
            median(&self.delete)
        )
    }
}

fn measure(daemon: &Daemon, effort: Effort, phases: &mut Phases) -> Result<Measured> {
    let mut connection = daemon.connect()?;
    cycle(&mut connection, "bench-cold-first", &mut Phases::default())?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for number in 0..effort.of(150) {
        std::thread::sleep(APART);
        theirs.time(baseline::bwrap_true)?;
        std::thread::sleep(APART);
        ours.time(|| cycle(&mut connection, &format!("bench-cold-{number}"), phases))?;
    }
    Ok(Measured::times(&ours, &theirs))
}

pub(super) fn cycle(connection: &mut Connection, name: &str, phases: &mut Phases) -> Result<()> {
    let session = format!("/v1/sessions/{name}");
    phases
        .create
        .time(|| connection.call("POST", &session, "{}", 201))?;
    let answer = phases
        .exec
        .time(|| connection.call("POST", &format!("{session}/exec"), r#"{"cmd":"true"}"#, 200))?;
    ensure!(
        answer.contains(r#""exit_code":0"#),
        "`true` did not succeed: {answer}"
    );
    phases
        .delete
        .time(|| connection.call("DELETE", &session, "", 200))?;
    Ok(())
}
