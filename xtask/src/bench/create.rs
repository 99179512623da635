//! Cold: create a box, run one command, delete it.
//!
//! Compared with `bwrap`, `runc` and `crun`, which all take turns in one measurement. There are pauses between creates,
//! because a tight loop hides some costs: for example, moving a pid between cgroups waits for a grace period.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use super::baseline::oci::{self, Bundle};
use super::clients::http::Connection;
use super::daemon::Daemon;
use super::measure::sample::Samples;
use super::measure::table::{Row, micros, time_text};
use super::measure::turns::{Times, Turns, Work};
use super::{Effort, baseline};

pub(super) const APART: Duration = Duration::from_millis(60);

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Ours,
    Bwrap,
    Runc,
    Crun,
}

/// The name of the row, the other side, and how the table calls it.
const ROWS: [(&str, Side, &str); 3] = [
    ("create", Side::Bwrap, "`bwrap --unshare-all … sh -c true`"),
    ("create-runc", Side::Runc, "`runc run` of `sh -c true`"),
    ("create-crun", Side::Crun, "`crun run` of `sh -c true`"),
];

/// The rows with these names.
pub(super) fn rows(daemon: &Daemon, effort: Effort, names: &[&str]) -> Vec<Row> {
    let wanted = || ROWS.into_iter().filter(|(name, ..)| names.contains(name));
    let theirs: Vec<_> = wanted().map(|(_, side, _)| side).collect();
    let mut phases = Phases::default();
    let times = measure(daemon, effort, &theirs, &mut phases);
    let row = |(_, side, against)| Row {
        what: "create + first exec + delete, creates 60 ms apart",
        against,
        at_most: Some(1.0),
        result: times.compare(Side::Ours, side),
        note: note(side, &phases),
    };
    wanted().map(row).collect()
}

fn note(side: Side, phases: &Phases) -> String {
    match side {
        Side::Runc => "each run is a new container of one bundle: busybox, and the configuration of `runc spec`, \
                       which has no cgroup limit, no seccomp filter and no user namespace"
            .to_owned(),
        Side::Crun => format!("the same bundle{}", oci::crun_note()),
        _ => format!(
            "three HTTP requests as `serve` runs by default; bwrap sets no cgroup limit, no seccomp filter \
             and no uid range. Medians: {}",
            phases.text()
        ),
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

fn measure(daemon: &Daemon, effort: Effort, theirs: &[Side], phases: &mut Phases) -> Times<Side> {
    let bundle = Bundle::make();
    let bundle = || bundle.as_ref().map_err(|error| anyhow!("{error:#}"));
    let mut turns = Turns::new();
    turns.join(Side::Ours, cycles(daemon, phases));
    for side in theirs {
        let work: Result<Work> = match side {
            Side::Runc => bundle().and_then(Bundle::runc),
            Side::Crun => bundle().and_then(Bundle::crun),
            _ => Ok(Box::new(baseline::bwrap_true)),
        };
        turns.join(*side, work);
    }
    for _ in 0..effort.of(150) {
        turns.take(|_| true, APART);
    }
    turns.finish()
}

/// One [`cycle`] for each turn. The first box has costs that later ones do not have, and is made here.
pub(super) fn cycles<'a>(daemon: &Daemon, phases: &'a mut Phases) -> Result<Work<'a>> {
    let mut connection = daemon.connect()?;
    cycle(&mut connection, "bench-cold-first", &mut Phases::default())?;
    let mut number = 0_u32;
    Ok(Box::new(move || {
        number += 1;
        cycle(&mut connection, &format!("bench-cold-{number}"), phases)
    }))
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
