//! Warm exec: one command in a box that is already there.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::clients::http::Connection;
use super::clients::python::PythonClient;
use super::daemon::Daemon;
use super::measure::sample::Samples;
use super::measure::table::{Measured, Row, micros, time_text};
use super::{Effort, baseline};

const SESSION: &str = "/v1/sessions/bench-warm";

/// Some costs in the kernel occur only after an idle period.
const APART: Duration = Duration::from_millis(60);

pub(super) fn against_fork(daemon: &Daemon, effort: Effort) -> Row {
    Row {
        what: "warm exec of `true`, whole HTTP round trip",
        against: "plain fork+exec of `sh -c true`",
        at_most: Some(1.4),
        result: fork(daemon, effort.of(1000), Duration::ZERO)
            .unwrap_or_else(|error| Measured::unknown(&error)),
        note:
            "one keep-alive connection, bare TCP client; fork+exec is `posix_spawn` from a small \
               process with no pipes"
                .into(),
    }
}

pub(super) fn against_fork_apart(daemon: &Daemon, effort: Effort) -> Row {
    Row {
        what: "the same, execs 60 ms apart",
        against: "plain fork+exec of `sh -c true`",
        at_most: Some(1.5),
        result: fork(daemon, effort.of(150), APART)
            .unwrap_or_else(|error| Measured::unknown(&error)),
        note: "client, daemon, init and command hand over to each other, and every time an idle \
               processor has to wake up; fork+exec does that twice"
            .into(),
    }
}

pub(super) fn python_against_fork(daemon: &Daemon, effort: Effort) -> Row {
    let mut note = String::new();
    let result = python(daemon, effort.of(1000), &mut note)
        .unwrap_or_else(|error| Measured::unknown(&error));
    Row {
        what: "warm exec of `true`, Python's `http.client`, less its own no-op request",
        against: "plain fork+exec of `sh -c true`",
        at_most: Some(1.6),
        result,
        note,
    }
}

fn python(daemon: &Daemon, iterations: usize, note: &mut String) -> Result<Measured> {
    let mut connection = warm_session(daemon)?;
    let mut client = PythonClient::start(daemon, SESSION)?;
    for _ in 0..20 {
        client.noop()?;
        client.exec()?;
    }
    let mut theirs = Samples::default();
    let (mut noops, mut execs) = (Samples::default(), Samples::default());
    for _ in 0..iterations {
        theirs.time(baseline::sh_true)?;
        noops.push(client.noop()?);
        execs.push(client.exec()?);
    }
    connection.call("DELETE", SESSION, "", 200)?;
    let floor = noops.median();
    *note = format!(
        "one keep-alive connection with `TCP_NODELAY`; medians: whole exec {}, no-op request (`GET /v1/health`) {}",
        time_text(micros(execs.median())),
        time_text(micros(floor))
    );
    Ok(Measured::times(&execs.less(floor), &theirs))
}

fn fork(daemon: &Daemon, iterations: usize, apart: Duration) -> Result<Measured> {
    let mut connection = warm_session(daemon)?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..iterations {
        std::thread::sleep(apart);
        theirs.time(baseline::sh_true)?;
        std::thread::sleep(apart);
        ours.time(|| exec_true(&mut connection))?;
    }
    connection.call("DELETE", SESSION, "", 200)?;
    Ok(Measured::times(&ours, &theirs))
}

pub(super) fn warm_session(daemon: &Daemon) -> Result<Connection> {
    let mut connection = daemon.connect()?;
    connection.call("POST", SESSION, "{}", 201)?;
    // Checks that commands really run: a command that fails would be quick too.
    let answer = connection.call(
        "POST",
        &format!("{SESSION}/exec"),
        r#"{"cmd":"echo box; exit 3"}"#,
        200,
    )?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    ensure!(
        answer["exit_code"] == 3 && answer["stdout"] == "box\n",
        "the box answered {answer}"
    );
    for _ in 0..20 {
        exec_true(&mut connection)?;
    }
    Ok(connection)
}

pub(super) fn exec_true(connection: &mut Connection) -> Result<()> {
    let answer = connection.call("POST", &format!("{SESSION}/exec"), r#"{"cmd":"true"}"#, 200)?;
    ensure!(
        answer.contains(r#""exit_code":0"#),
        "`true` did not succeed: {answer}"
    );
    Ok(())
}
