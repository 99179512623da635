//! A client of one process, which comes back whenever the daemon does, and checks every byte.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::chance::Chance;
use crate::ticker::{Reader, input_line};

/// Input that was not acknowledged; beyond this the client waits.
const MOST_UNSURE: usize = 16 * 1024;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Storm,
    /// No more input; stop when everything that was said has come back.
    Drain,
}

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) struct Relay {
    port: u16,
    session: String,
    chance: Chance,
    pub(crate) reader: Reader,
    /// Output that was read, in bytes.
    offset: u64,
    /// Lines of input that were made.
    pub(crate) lines: u64,
    /// Input from `accepted` on.
    unsure: Vec<u8>,
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
    pub(crate) fn new(port: u16, session: String, chance: Chance) -> Self {
        Self {
            port,
            session,
            chance,
            reader: Reader::default(),
            offset: 0,
            lines: 0,
            unsure: Vec::new(),
            accepted: 0,
            started_at: None,
            connections: 0,
        }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Until everything is drained, or something is wrong.
    pub(crate) async fn run(mut self, mut phase: watch::Receiver<Phase>) -> anyhow::Result<Self> {
        loop {
            let connected = self.connect().await;
            let connected = connected.with_context(|| format!("session {}", self.session))?;
            let Some(socket) = connected else {
                tokio::time::sleep(self.chance.millis(10, 60)).await;
                continue;
            };
            let talked = self.talk(socket, &mut phase).await;
            match talked.with_context(|| format!("session {}", self.session))? {
                Ended::Drained => return Ok(self),
                Ended::Lost => {}
            }
        }
    }

    /// `None` while there is no daemon.
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
        let mut next_line = tokio::time::Instant::now() + self.chance.millis(0, 200);
        // Some clients go away by themselves.
        let leaves = self.chance.one_in(4).then(|| self.chance.millis(50, 1500));
        let leaves = tokio::time::Instant::now() + leaves.unwrap_or(Duration::from_hours(1));
        loop {
            let draining = *phase.borrow_and_update() == Phase::Drain;
            if draining && self.reader.echoes == self.lines && self.unsure.is_empty() {
                return Ok(Ended::Drained);
            }
            let may_write = joined && !draining && self.unsure.len() < MOST_UNSURE;
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Binary(bytes))) => {
                        ensure!(joined, "output before the first frame");
                        self.offset += bytes.len() as u64;
                        self.reader.read(&bytes)?;
                    }
                    Some(Ok(Message::Text(text))) => {
                        let news: Value = serde_json::from_str(&text)?;
                        self.news(&news, &mut joined)?;
                        if news.get("stdout").is_some() && !self.unsure.is_empty() {
                            let again = self.unsure.clone();
                            if socket.send(Message::binary(again)).await.is_err() {
                                return Ok(Ended::Lost);
                            }
                        }
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(Ended::Lost),
                },
                () = tokio::time::sleep_until(next_line), if may_write => {
                    next_line = tokio::time::Instant::now() + self.chance.millis(20, 400);
                    let line = input_line(self.lines);
                    self.lines += 1;
                    self.unsure.extend_from_slice(line.as_bytes());
                    if socket.send(Message::binary(line)).await.is_err() {
                        return Ok(Ended::Lost);
                    }
                    if self.chance.one_in(3) {
                        let seen = format!(r#"{{"type":"ack","stdout":{}}}"#, self.offset);
                        if socket.send(Message::text(seen)).await.is_err() {
                            return Ok(Ended::Lost);
                        }
                    }
                }
                () = tokio::time::sleep_until(leaves) => return Ok(Ended::Lost),
                // Looked at above.
                _ = phase.changed() => {}
            }
        }
    }

    fn news(&mut self, news: &Value, joined: &mut bool) -> anyhow::Result<()> {
        ensure!(news.get("error").is_none(), "the relay says {news}");
        ensure!(
            news.get("exited").is_none(),
            "the process has ended: {news}"
        );
        if let Some(stdout) = news.get("stdout") {
            ensure!(!*joined, "a second first frame: {news}");
            *joined = true;
            ensure!(
                stdout.as_u64() == Some(self.offset),
                "output goes on at {stdout}, and was read up to {}",
                self.offset
            );
            let started_at = news.get("started_at").context("when it was started")?;
            let before = self.started_at.get_or_insert_with(|| started_at.clone());
            ensure!(
                before == started_at,
                "another process: {before} and {started_at}"
            );
        }
        let stdin = news.get("stdin").and_then(Value::as_u64);
        let stdin = stdin.with_context(|| format!("an unknown frame: {news}"))?;
        let sent = self.accepted + self.unsure.len() as u64;
        ensure!(
            (self.accepted..=sent).contains(&stdin),
            "{stdin} bytes of input are there; {} were promised, and {sent} sent",
            self.accepted
        );
        let surely = usize::try_from(stdin - self.accepted)?;
        self.unsure.drain(..surely);
        self.accepted = stdin;
        Ok(())
    }
}
