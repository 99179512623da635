//! The round trip of one line through `cat` in a box, compared with another relay.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Effort;
use super::baseline::websocat;
use super::daemon::Daemon;
use super::http::Connection;
use super::table::{Measured, Row};
use super::turns::{Times, Turns, Work};
use super::websocket::WebSocket;

const SESSION: &str = "/v1/sessions/bench-relay";
const LINE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const WARM_UP: usize = 20;

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Ours,
    Websocat,
}

pub(super) fn against_websocat(daemon: &Daemon, effort: Effort) -> Row {
    Row {
        what: "relay round trip, one line through `cat`",
        against: "`websocat -t -E ws-l:… cmd:cat` on the host",
        at_most: Some(2.0),
        result: match measure(daemon, effort) {
            Ok(times) => times.compare(Side::Ours, Side::Websocat),
            Err(error) => Measured::unknown(&error),
        },
        note: "websocat 1.14.1; the same bare WebSocket client on both sides".to_owned(),
    }
}

fn measure(daemon: &Daemon, effort: Effort) -> Result<Times<Side>> {
    let mut connection = daemon.connect()?;
    connection.call("POST", SESSION, "{}", 201)?;
    connection.call(
        "POST",
        &format!("{SESSION}/managed-process"),
        r#"{"command":"cat"}"#,
        201,
    )?;
    let mut turns = Turns::new();
    turns.join(Side::Ours, ours(daemon));
    turns.join(Side::Websocat, through_websocat());
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
