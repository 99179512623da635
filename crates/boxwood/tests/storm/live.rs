//! Streamed commands, which are resumed after the daemon was killed.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::relay::Socket;

const LINES: usize = 30;
const CODE: u64 = 5;

fn expected(stream: &str) -> String {
    let lines: Vec<_> = (1..=LINES)
        .map(|number| format!("{stream} {number}\n"))
        .collect();
    lines.concat()
}

fn command() -> String {
    format!(
        "for n in $(seq {LINES}); do echo out $n; echo err $n >&2; sleep 0.05; done; exit {CODE}"
    )
}

/// All output of one command, and its end.
#[derive(Default)]
struct Followed {
    exec_id: Option<u64>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit_code: Option<u64>,
    /// Its timeout expired, because the clock of the next daemon was a day ahead.
    timed_out_by_clock: bool,
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Runs a command to its end. Returns false if the daemon was killed before it reported the id of the command.
pub(crate) async fn run(port: u16, session: &str, incarnation: u64) -> anyhow::Result<bool> {
    let mut followed = Followed::default();
    let place = format!("ws://127.0.0.1:{port}/v1/sessions/{session}");
    let path = format!("{place}/exec/ws?incarnation={incarnation}");
    let Some(mut socket) = connect(&path).await? else {
        return Ok(false);
    };
    let start = json!({ "type": "start", "spec": { "cmd": command() }, "resumable": true });
    if socket.send(Message::text(start.to_string())).await.is_ok() {
        followed.listen(socket).await?;
    }
    let Some(exec_id) = followed.exec_id else {
        return Ok(false);
    };
    while followed.exit_code.is_none() && !followed.timed_out_by_clock {
        let (stdout, stderr) = (followed.stdout.len(), followed.stderr.len());
        let path = format!(
            "{place}/execs/{exec_id}/ws?incarnation={incarnation}&stdout={stdout}&stderr={stderr}"
        );
        match connect(&path).await? {
            Some(socket) => followed.listen(socket).await?,
            None => tokio::time::sleep(Duration::from_millis(30)).await,
        }
    }
    let (stdout, stderr) = (expected("out"), expected("err"));
    let whole = followed.exit_code == Some(CODE)
        && followed.stdout == stdout.as_bytes()
        && followed.stderr == stderr.as_bytes();
    let cut_short = followed.timed_out_by_clock
        && stdout.as_bytes().starts_with(&followed.stdout)
        && stderr.as_bytes().starts_with(&followed.stderr);
    ensure!(
        whole || cut_short,
        "command {exec_id} in {session} ended with {:?} and said {:?} and {:?}",
        followed.exit_code,
        String::from_utf8_lossy(&followed.stdout),
        String::from_utf8_lossy(&followed.stderr)
    );
    Ok(true)
}

async fn connect(path: &str) -> anyhow::Result<Option<Socket>> {
    let connecting = tokio::time::timeout(Duration::from_mins(1), connect_async(path));
    match connecting.await.context("the daemon does not answer")? {
        Ok((socket, _)) => Ok(Some(socket)),
        Err(tungstenite::Error::Http(answer)) => {
            let body = answer.body().as_deref().map(String::from_utf8_lossy);
            bail!("{path} is refused: {} {body:?}", answer.status())
        }
        Err(_) => Ok(None),
    }
}

impl Followed {
    /// Reads until the command or the connection ends.
    async fn listen(&mut self, mut socket: Socket) -> anyhow::Result<()> {
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Binary(bytes) => match bytes.split_first() {
                    Some((1, rest)) => self.stdout.extend_from_slice(rest),
                    Some((2, rest)) => self.stderr.extend_from_slice(rest),
                    _ => bail!("a frame of no channel: {bytes:?}"),
                },
                Message::Text(text) => self.event(&serde_json::from_str(&text)?)?,
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Value) -> anyhow::Result<()> {
        match event["type"].as_str() {
            Some("started") => self.exec_id = event["exec_id"].as_u64(),
            Some("resumed") => ensure!(
                event["stdout"] == self.stdout.len() && event["stderr"] == self.stderr.len(),
                "output continues at another offset: {event}, after {} and {}",
                self.stdout.len(),
                self.stderr.len()
            ),
            Some("exit") => {
                let timed_out = event["status"] == "timed_out";
                let duration_ms = event["duration_ms"].as_u64().unwrap_or_default();
                if timed_out && duration_ms >= DAY_MS {
                    self.timed_out_by_clock = true;
                    return Ok(());
                }
                let code = event["exit_code"].as_u64();
                self.exit_code = Some(code.with_context(|| format!("no code: {event}"))?);
            }
            Some("accepted" | "stdin_closed") => {}
            _ => bail!("unknown event {event}"),
        }
        Ok(())
    }
}
