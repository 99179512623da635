//! What boxes and the daemon cost while nothing happens.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::baseline;
use super::baseline::langbot_box::LangBotBoxRuntime;
use super::clients::http::Connection;
use super::daemon::Daemon;
use super::measure::procfs::{self, Memory};
use super::measure::table::{Measured, Row};
use crate::engines::IMAGE;

const ALIVE: u32 = 200;
const MANY: u32 = 1000;
/// Connections that create boxes side by side.
const CREATORS: u32 = 4;
/// Time for the work that a process does after its start.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn box_against_bwrap(binary: &Path) -> Row {
    let mut note = String::new();
    let result = boxes(binary, &mut note).unwrap_or_else(|error| Measured::unknown(&error));
    Row {
        what: "idle box, private memory of all its processes, 200 alive",
        against: "bwrap + sleep, 200 alive",
        at_most: Some(0.5),
        result,
        note,
    }
}

pub(super) fn thousand_boxes(binary: &Path) -> Row {
    let (result, note) = match many(binary) {
        Ok(note) => (Measured::Answer { yes: true }, note),
        Err(error) => (Measured::Answer { yes: false }, format!("{error:#}")),
    };
    Row {
        what: "1,000 boxes alive at once",
        against: "–",
        at_most: None,
        result,
        note,
    }
}

pub(super) fn daemon_against_langbot_box(binary: &Path) -> Row {
    let mut note = String::new();
    let result = daemons(binary, &mut note).unwrap_or_else(|error| Measured::unknown(&error));
    Row {
        what: "daemon idle RSS",
        against: "LangBot Box's Python runtime",
        at_most: Some(0.2),
        result,
        note,
    }
}

fn boxes(binary: &Path, note: &mut String) -> Result<Measured> {
    let daemon = Daemon::start(binary)?;
    std::thread::sleep(SETTLE);
    // Helpers and boxes made in advance are there before and after; the difference is the boxes.
    let before = Snapshot::take(&daemon)?;
    create(&daemon, "bench-idle", ALIVE)?;
    std::thread::sleep(SETTLE);
    let after = Snapshot::take(&daemon)?;
    let namespaces = after.pid_namespaces.saturating_sub(before.pid_namespaces);
    ensure!(
        namespaces >= ALIVE as usize,
        "{ALIVE} boxes were made, but only {namespaces} new PID namespaces are below the daemon"
    );
    let ours = per_box(before.boxes.private_kib, after.boxes.private_kib);
    *note = format!(
        "each box has run one command; PSS {:.0} KiB a box; the daemon itself grew by {:.0} KiB a box",
        per_box(before.boxes.pss_kib, after.boxes.pss_kib),
        per_box(before.daemon.private_kib, after.daemon.private_kib),
    );
    drop(daemon);

    let mut sleepers = Sleepers(Vec::new());
    for _ in 0..ALIVE {
        sleepers.0.push(baseline::bwrap_sleep()?);
    }
    std::thread::sleep(SETTLE);
    let roots: Vec<_> = sleepers.0.iter().map(std::process::Child::id).collect();
    let mut all = procfs::descendants(&roots)?;
    ensure!(
        all.len() >= roots.len(),
        "the bwrap processes have ended early"
    );
    all.extend(roots);
    let theirs = per_box(0, procfs::memory_of(&all).private_kib);
    Ok(Measured::kibibytes(ours, theirs))
}

fn many(binary: &Path) -> Result<String> {
    let daemon = Daemon::start(binary)?;
    let started = Instant::now();
    create(&daemon, "bench-many", MANY)?;
    let took = started.elapsed();
    let mut connection = daemon.connect()?;
    let status = connection.call("GET", "/v1/status", "", 200)?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    ensure!(
        status["active_sessions"] == MANY,
        "the daemon counts {} sessions",
        status["active_sessions"]
    );
    // The oldest is still a working box.
    run_true(&mut connection, "bench-many-0-0")?;
    let stopping = Instant::now();
    drop(daemon);
    Ok(format!(
        "created and used once each in {:.1} s by {CREATORS} clients; all gone {:.1} s after SIGTERM",
        took.as_secs_f64(),
        stopping.elapsed().as_secs_f64()
    ))
}

fn daemons(binary: &Path, note: &mut String) -> Result<Measured> {
    // All backends are configured; unused ones must cost nothing.
    let daemon = Daemon::start_on(binary, "native", |command| {
        command
            .env("BOXWOOD_DOCKER__IMAGE", IMAGE)
            .env("BOXWOOD_PODMAN__IMAGE", IMAGE)
            .env("BOXWOOD_NSJAIL__PROGRAM", "nsjail");
        Ok(())
    })?;
    std::thread::sleep(SETTLE);
    let own = procfs::memory(daemon.pid())?;
    let helpers = procfs::descendants(&[daemon.pid()])?;
    let mut together = procfs::memory_of(&helpers);
    together += own;
    *note = format!(
        "docker, podman and nsjail configured but not in use; with its {} helper processes the daemon's \
         PSS is {} KiB",
        helpers.len(),
        together.pss_kib
    );
    drop(daemon);
    let langbot_box =
        LangBotBoxRuntime::start().context("LangBot Box's runtime could not be started")?;
    std::thread::sleep(SETTLE);
    let theirs = procfs::memory(langbot_box.pid())?;
    Ok(Measured::kibibytes(kib(own.rss_kib), kib(theirs.rss_kib)))
}

/// Creates `count` sessions from several connections, each used once.
pub(super) fn create(daemon: &Daemon, name: &str, count: u32) -> Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CREATORS)
            .map(|worker| {
                scope.spawn(move || -> Result<()> {
                    let mut connection = daemon.connect()?;
                    for number in 0..count / CREATORS {
                        let session = format!("{name}-{worker}-{number}");
                        connection.call("POST", &format!("/v1/sessions/{session}"), "{}", 201)?;
                        run_true(&mut connection, &session)?;
                    }
                    Ok(())
                })
            })
            .collect();
        for worker in workers {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a creating thread panicked"))??;
        }
        Ok(())
    })
}

pub(super) fn run_true(connection: &mut Connection, session: &str) -> Result<()> {
    let answer = connection.call(
        "POST",
        &format!("/v1/sessions/{session}/exec"),
        r#"{"cmd":"true"}"#,
        200,
    )?;
    ensure!(
        answer.contains(r#""exit_code":0"#),
        "`true` did not succeed: {answer}"
    );
    Ok(())
}

pub(super) struct Snapshot {
    daemon: Memory,
    /// Everything below the daemon.
    boxes: Memory,
    pid_namespaces: usize,
}

impl Snapshot {
    pub(super) fn boxes_kib(&self) -> f64 {
        kib(self.boxes.private_kib)
    }

    pub(super) fn daemon_kib(&self) -> f64 {
        kib(self.daemon.private_kib)
    }

    pub(super) fn take(daemon: &Daemon) -> Result<Self> {
        let pids = procfs::descendants(&[daemon.pid()])?;
        let own = fs::read_link("/proc/self/ns/pid")?;
        let namespaces: BTreeSet<_> = pids
            .iter()
            .filter_map(|pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok())
            .filter(|namespace| *namespace != own)
            .collect();
        Ok(Self {
            daemon: procfs::memory(daemon.pid())?,
            boxes: procfs::memory_of(&pids),
            pid_namespaces: namespaces.len(),
        })
    }
}

struct Sleepers(Vec<std::process::Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn per_box(before_kib: u64, after_kib: u64) -> f64 {
    (kib(after_kib) - kib(before_kib)) / f64::from(ALIVE)
}

/// Exact for anything that fits into a machine.
fn kib(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
