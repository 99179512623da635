//! A client of a managed process, which reconnects after each restart of the daemon and checks every byte.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::random::Random;
use crate::ticker::{Reader, input_line};

/// The client sends no more input while this many bytes are not acknowledged.
const MAX_UNACKNOWLEDGED: usize = 16 * 1024;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Storm,
    /// No more input; stop when all input was echoed.
    Drain,
}

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) struct Relay {
    port: u16,
    session: String,
    random: Random,
    pub(crate) reader: Reader,
    /// Output that was read, in bytes.
    offset: u64,
    /// Lines of input that were created.
    pub(crate) lines: u64,
    /// Input after the first `accepted` bytes.
    unacknowledged: Vec<u8>,
    /// Input that the daemon has promised to keep, in bytes.
    accepted: u64,
    started_at: Option<Value>,
    pub(crate) connections: u64,
}

/// Why a connection ended.
enum Ended {
    Lost,
    Drained,
}

impl Relay {
    pub(crate) fn new(port: u16, session: String, random: Random) -> Self {
        Self {
            port,
            session,
            random,
            reader: Reader::default(),
            offset: 0,
            lines: 0,
            unacknowledged: Vec::new(),
            accepted: 0,
            started_at: None,
            connections: 0,
        }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Runs until all input was echoed, or fails at the first error.
    pub(crate) async fn run(mut self, mut phase: watch::Receiver<Phase>) -> anyhow::Result<Self> {
        loop {
            let connected = self.connect().await;
            let connected = connected.with_context(|| format!("session {}", self.session))?;
            let Some(socket) = connected else {
                tokio::time::sleep(self.random.millis(10, 60)).await;
                continue;
            };
            let talked = self.talk(socket, &mut phase).await;
            match talked.with_context(|| format!("session {}", self.session))? {
                Ended::Drained => return Ok(self),
                Ended::Lost => {}
            }
        }
    }

    /// `None` while no daemon runs.
    async fn connect(&mut self) -> anyhow::Result<Option<Socket>> {
        let (port, session, offset) = (self.port, &self.session, self.offset);
        let url = format!(
            "ws://127.0.0.1:{port}/v1/sessions/{session}/managed-process/ws?since={offset}"
        );
        let connecting = tokio::time::timeout(Duration::from_mins(1), connect_async(url));
        match connecting.await.context("the daemon does not answer")? {
            Ok((socket, _)) => {
                self.connections += 1;
                Ok(Some(socket))
            }
            Err(tungstenite::Error::Http(answer)) => {
                let body = answer.body().as_deref().map(String::from_utf8_lossy);
                bail!("the relay is refused: {} {body:?}", answer.status())
            }
            Err(_) => Ok(None),
        }
    }

    async fn talk(
        &mut self,
        mut socket: Socket,
        phase: &mut watch::Receiver<Phase>,
    ) -> anyhow::Result<Ended> {
        let mut joined = false;
        let mut next_line = tokio::time::Instant::now() + self.random.millis(0, 200);
        // Some clients disconnect by themselves.
        let leaves = self.random.one_in(4).then(|| self.random.millis(50, 1500));
        let leaves = tokio::time::Instant::now() + leaves.unwrap_or(Duration::from_hours(1));
        loop {
            let draining = *phase.borrow_and_update() == Phase::Drain;
            if draining && self.reader.echoes == self.lines && self.unacknowledged.is_empty() {
                return Ok(Ended::Drained);
            }
            let may_write = joined && !draining && self.unacknowledged.len() < MAX_UNACKNOWLEDGED;
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Binary(bytes))) => {
                        ensure!(joined, "output before the first frame");
                        self.offset += bytes.len() as u64;
                        self.reader.read(&bytes)?;
                    }
                    Some(Ok(Message::Text(text))) => {
                        let event: Value = serde_json::from_str(&text)?;
                        self.event(&event, &mut joined)?;
                        if event.get("stdout").is_some() && !self.unacknowledged.is_empty() {
                            let again = self.unacknowledged.clone();
                            if socket.send(Message::binary(again)).await.is_err() {
                                return Ok(Ended::Lost);
                            }
                        }
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(Ended::Lost),
                },
                () = tokio::time::sleep_until(next_line), if may_write => {
                    next_line = tokio::time::Instant::now() + self.random.millis(20, 400);
                    let line = input_line(self.lines);
                    self.lines += 1;
                    self.unacknowledged.extend_from_slice(line.as_bytes());
                    if socket.send(Message::binary(line)).await.is_err() {
                        return Ok(Ended::Lost);
                    }
                    if self.random.one_in(3) {
                        let seen = format!(r#"{{"type":"ack","stdout":{}}}"#, self.offset);
                        if socket.send(Message::text(seen)).await.is_err() {
                            return Ok(Ended::Lost);
                        }
                    }
                }
                () = tokio::time::sleep_until(leaves) => return Ok(Ended::Lost),
                // Checked above.
                _ = phase.changed() => {}
            }
        }
    }

    fn event(&mut self, event: &Value, joined: &mut bool) -> anyhow::Result<()> {
        ensure!(event.get("error").is_none(), "the relay reports {event}");
        ensure!(
            event.get("exited").is_none(),
            "the process has ended: {event}"
        );
        if let Some(stdout) = event.get("stdout") {
            ensure!(!*joined, "a second first frame: {event}");
            *joined = true;
            ensure!(
                stdout.as_u64() == Some(self.offset),
                "output continues at {stdout}, and was read up to {}",
                self.offset
            );
            let started_at = event.get("started_at").context("when it was started")?;
            let before = self.started_at.get_or_insert_with(|| started_at.clone());
            ensure!(
                before == started_at,
                "another process: {before} and {started_at}"
            );
        }
        let stdin = event.get("stdin").and_then(Value::as_u64);
        let stdin = stdin.with_context(|| format!("an unknown frame: {event}"))?;
        let sent = self.accepted + self.unacknowledged.len() as u64;
        ensure!(
            (self.accepted..=sent).contains(&stdin),
            "{stdin} bytes of input were accepted; {} had been accepted before, and {sent} were sent",
            self.accepted
        );
        let newly_accepted = usize::try_from(stdin - self.accepted)?;
        self.unacknowledged.drain(..newly_accepted);
        self.accepted = stdin;
        Ok(())
    }
}
