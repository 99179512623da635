//! One line through `cat` and back, like a message of a stdio MCP server.
//!
//! Compared with another relay and with a raw pipe, which all take turns in one measurement.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Effort;
use super::baseline::websocat;
use super::clients::http::Connection;
use super::clients::pipe::Pipe;
use super::clients::websocket::WebSocket;
use super::daemon::Daemon;
use super::measure::table::{Measured, Row};
use super::measure::turns::{Times, Turns, Work};

const SESSION: &str = "/v1/sessions/bench-relay";
const LINE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const WARM_UP: usize = 20;

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Ours,
    Websocat,
    Pipe,
}

struct Comparison {
    name: &'static str,
    theirs: Side,
    against: &'static str,
    at_most: Option<f64>,
    note: &'static str,
}

const ROWS: [Comparison; 2] = [
    Comparison {
        name: "relay",
        theirs: Side::Websocat,
        against: "`websocat -t -E ws-l:… cmd:cat` on the host",
        at_most: Some(2.0),
        note: "websocat 1.14.1; the same bare WebSocket client on both sides",
    },
    Comparison {
        name: "relay-pipe",
        theirs: Side::Pipe,
        against: "the same over a raw pipe",
        at_most: None,
        note: "no target: a pipe has no process between the caller and `cat`",
    },
];

/// The rows with these names.
pub(super) fn rows(daemon: &Daemon, effort: Effort, names: &[&str]) -> Vec<Row> {
    let wanted = || ROWS.into_iter().filter(|row| names.contains(&row.name));
    let theirs: Vec<_> = wanted().map(|row| row.theirs).collect();
    let times = measure(daemon, effort, &theirs);
    let row = |row: Comparison| Row {
        what: "relay round trip, one line through `cat`",
        against: row.against,
        at_most: row.at_most,
        result: match &times {
            Ok(times) => times.compare(Side::Ours, row.theirs),
            Err(error) => Measured::unknown(error),
        },
        note: row.note.to_owned(),
    };
    wanted().map(row).collect()
}

fn measure(daemon: &Daemon, effort: Effort, theirs: &[Side]) -> Result<Times<Side>> {
    let mut turns = Turns::new();
    // First, because it builds websocat if it is missing. This client answers no pings, so the daemon would close an
    // idle relay meanwhile.
    for side in theirs {
        turns.join(
            *side,
            match side {
                Side::Websocat => through_websocat(),
                _ => through_pipe(),
            },
        );
    }
    let mut connection = daemon.connect()?;
    connection.call("POST", SESSION, "{}", 201)?;
    connection.call(
        "POST",
        &format!("{SESSION}/managed-process"),
        r#"{"command":"cat"}"#,
        201,
    )?;
    turns.join(Side::Ours, ours(daemon));
    for _ in 0..effort.of(5000) {
        turns.take(|_| true, Duration::ZERO);
    }
    let times = turns.finish();
    connection.call("DELETE", SESSION, "", 200)?;
    Ok(times)
}

fn ours(daemon: &Daemon) -> Result<Work<'static>> {
    let path = format!("{SESSION}/managed-process/ws");
    let mut relay = WebSocket::new(daemon.connect()?.upgrade(&path)?);
    warm(move || through_relay(&mut relay))
}

fn through_websocat() -> Result<Work<'static>> {
    let server = websocat::cat()?;
    let mut relay = WebSocket::new(Connection::open(server.address())?.upgrade("/")?);
    warm(move || {
        // The server ends with this closure.
        let _ = &server;
        through_relay(&mut relay)
    })
}

fn through_pipe() -> Result<Work<'static>> {
    let mut pipe = Pipe::start(&mut Command::new("cat"))?;
    warm(move || {
        let line = pipe.request(LINE)?;
        ensure!(line == LINE, "`cat` gave back `{line}`");
        Ok(())
    })
}

fn through_relay(relay: &mut WebSocket) -> Result<()> {
    relay.send(LINE)?;
    let line = relay.receive()?;
    ensure!(line.trim_end() == LINE, "the relay gave back `{line}`");
    Ok(())
}

fn warm(mut work: impl FnMut() -> Result<()> + 'static) -> Result<Work<'static>> {
    for _ in 0..WARM_UP {
        work()?;
    }
    Ok(Box::new(work))
}
