//! One line through `cat` and back: what a stdio MCP server feels.
//!
//! Comes in: a daemon. Goes out: the row against a raw pipe. Never here: throughput.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Effort;
use super::daemon::Daemon;
use super::sample::Samples;
use super::table::{Measured, Row};
use super::websocket::WebSocket;

const SESSION: &str = "/v1/sessions/bench-relay";
const LINE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

pub(super) fn against_pipe(daemon: &Daemon, effort: Effort) -> Row {
    Row {
        what: "relay round trip, one line through `cat`",
        against: "the same over a raw pipe",
        at_most: Some(3.0),
        result: measure(daemon, effort).unwrap_or_else(|error| Measured::unknown(&error)),
        note: String::new(),
    }
}

fn measure(daemon: &Daemon, effort: Effort) -> Result<Measured> {
    let mut connection = daemon.connect()?;
    connection.call("POST", SESSION, "{}", 201)?;
    connection.call(
        "POST",
        &format!("{SESSION}/managed-process"),
        r#"{"command":"cat"}"#,
        201,
    )?;
    let mut relay = WebSocket::new(
        daemon
            .connect()?
            .upgrade(&format!("{SESSION}/managed-process/ws"))?,
    );
    let mut pipe = Pipe::start()?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..20 {
        through_relay(&mut relay)?;
        pipe.round_trip()?;
    }
    for _ in 0..effort.of(5000) {
        theirs.time(|| pipe.round_trip())?;
        ours.time(|| through_relay(&mut relay))?;
    }
    connection.call("DELETE", SESSION, "", 200)?;
    Ok(Measured::times(&ours, &theirs))
}

fn through_relay(relay: &mut WebSocket) -> Result<()> {
    relay.send(LINE)?;
    let line = relay.receive()?;
    ensure!(line.trim_end() == LINE, "the relay gave back `{line}`");
    Ok(())
}

struct Pipe {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Pipe {
    fn start() -> Result<Self> {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("`cat` has no stdin")?;
        let stdout = child.stdout.take().context("`cat` has no stdout")?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    fn round_trip(&mut self) -> Result<()> {
        self.stdin.write_all(format!("{LINE}\n").as_bytes())?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        ensure!(line.trim_end() == LINE, "`cat` gave back `{line}`");
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
