//! The time in which a new daemon adopts the boxes of a killed one.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::super::daemon::Daemon;
use super::super::idle::{create, run_true};
use super::super::measure::sample::Samples;
use super::super::measure::table::{Measured, Row};

const BOXES: u32 = 500;
const ROUNDS: usize = 5;

pub(super) fn row(binary: &Path) -> Row {
    Row {
        what: "from SIGKILL with 500 boxes to serving all of them again",
        against: "making 500 boxes",
        at_most: Some(0.5),
        result: measure(binary).unwrap_or_else(|error| Measured::unknown(&error)),
        note: "the boxes are made once, by four clients, each with one exec; the daemon is killed and \
               started again five times; serving means that the status counts all of them and the first \
               one runs a command"
            .into(),
    }
}

fn measure(binary: &Path) -> Result<Measured> {
    let mut daemon = Daemon::start(binary)?;
    let started = Instant::now();
    create(&daemon, "bench-adopt", BOXES)?;
    let made = Samples::from(vec![started.elapsed()]);
    let mut adopted = Samples::default();
    for _ in 0..ROUNDS {
        daemon.kill()?;
        adopted.time(|| {
            daemon.start_again(binary)?;
            let mut connection = daemon.connect()?;
            let status = connection.call("GET", "/v1/status", "", 200)?;
            let status: serde_json::Value = serde_json::from_str(&status)?;
            ensure!(
                status["active_sessions"] == BOXES,
                "of {BOXES} boxes the next daemon has {}",
                status["active_sessions"]
            );
            run_true(&mut connection, "bench-adopt-0-0")
        })?;
    }
    Ok(Measured::times(&adopted, &made))
}
