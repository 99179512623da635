//! Load while daemons are killed: commands, and sessions that are created and deleted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{bail, ensure};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ask::{Answer, ask, must};
use crate::live;
use crate::random::Random;
use crate::relay::Phase;

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) commands: AtomicU64,
    /// Streamed commands whose output was complete.
    pub(crate) followed: AtomicU64,
    pub(crate) made: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// True if the ledger has no space for a new session.
    pub(crate) no_room: AtomicBool,
    /// Sessions that were refused for this reason.
    pub(crate) refused: AtomicU64,
    /// Sessions that may or may not exist.
    uncertain: Mutex<BTreeSet<String>>,
}

/// Starts the load. It ends when the phase changes.
pub(crate) fn begin(
    port: u16,
    sessions: &[(String, u64)],
    random: &mut Random,
    phase: &watch::Receiver<Phase>,
    tally: &Arc<Tally>,
) -> JoinSet<anyhow::Result<()>> {
    let mut load = JoinSet::new();
    let mut worker = |number| Worker {
        port,
        number,
        random: random.fork(),
        phase: phase.clone(),
        tally: Arc::clone(tally),
    };
    for number in 0..3 {
        load.spawn(worker(number).commands(sessions.to_vec()));
    }
    for number in 0..2 {
        load.spawn(worker(number).live_commands(sessions.to_vec()));
        load.spawn(worker(number).create_and_delete());
    }
    load
}

struct Worker {
    port: u16,
    number: u64,
    random: Random,
    phase: watch::Receiver<Phase>,
    tally: Arc<Tally>,
}

impl Worker {
    fn is_storming(&self) -> bool {
        *self.phase.borrow() == Phase::Storm
    }

    async fn commands(mut self, sessions: Vec<(String, u64)>) -> anyhow::Result<()> {
        while self.is_storming() {
            let most = sessions.len() as u64;
            let (session, incarnation) = &sessions[usize::try_from(self.random.within(0, most))?];
            let so_far = self.tally.commands.load(Ordering::Relaxed);
            let expected = format!("{}-{so_far}", self.number);
            let body = json!({ "cmd": format!("echo {expected}; exit 7") });
            // The incarnation excludes a new session of the same name.
            let path = format!("/v1/sessions/{session}/exec?incarnation={incarnation}");
            match ask(self.port, "POST", &path, Some(&body)).await? {
                Answer::Lost => self.lost().await,
                Answer::Response(200, result) => {
                    ensure!(
                        result["stdout"] == json!(format!("{expected}\n"))
                            && result["exit_code"] == 7,
                        "a command in {session} has the result {result}"
                    );
                    self.tally.commands.fetch_add(1, Ordering::Relaxed);
                }
                Answer::Response(status, body) => bail!("{path} is answered {status}: {body}"),
            }
            tokio::time::sleep(self.random.millis(1, 60)).await;
        }
        Ok(())
    }

    async fn live_commands(mut self, sessions: Vec<(String, u64)>) -> anyhow::Result<()> {
        while self.is_storming() {
            let most = sessions.len() as u64;
            let (session, incarnation) = &sessions[usize::try_from(self.random.within(0, most))?];
            if live::run(self.port, session, *incarnation).await? {
                self.tally.followed.fetch_add(1, Ordering::Relaxed);
            } else {
                self.lost().await;
            }
        }
        Ok(())
    }

    async fn create_and_delete(mut self) -> anyhow::Result<()> {
        let mut number = 0;
        while self.is_storming() {
            let session = format!("x{}-{number}", self.number);
            number += 1;
            self.tally.uncertain().insert(session.clone());
            let path = format!("/v1/sessions/{session}");
            // There may be space again when the response arrives.
            let was_full = self.tally.no_room.load(Ordering::Acquire);
            match ask(self.port, "POST", &path, Some(&json!({}))).await? {
                Answer::Lost => {
                    self.lost().await;
                    continue;
                }
                Answer::Response(200 | 201, _) => {
                    self.tally.made.fetch_add(1, Ordering::Relaxed);
                }
                Answer::Response(507 | 503, body)
                    if was_full || self.tally.no_room.load(Ordering::Acquire) =>
                {
                    ensure!(
                        body.to_string().contains("no space left"),
                        "the error does not name the reason: {body}"
                    );
                    self.tally.refused.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(self.random.millis(20, 200)).await;
                    continue;
                }
                Answer::Response(status, body) => bail!("POST {path} is answered {status}: {body}"),
            }
            tokio::time::sleep(self.random.millis(1, 200)).await;
            match ask(self.port, "DELETE", &path, None).await? {
                Answer::Lost => self.lost().await,
                Answer::Response(200..=204, _) => {
                    self.tally.uncertain().remove(&session);
                    self.tally.deleted.fetch_add(1, Ordering::Relaxed);
                }
                Answer::Response(status, body) => {
                    bail!("DELETE {path} is answered {status}: {body}")
                }
            }
        }
        Ok(())
    }

    async fn lost(&self) {
        self.tally.lost.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Tally {
    fn uncertain(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.uncertain.lock().expect("not poisoned")
    }

    /// Removes all sessions that may exist.
    pub(crate) async fn clear_up(&self, port: u16) -> anyhow::Result<()> {
        let uncertain: Vec<_> = std::mem::take(&mut *self.uncertain()).into_iter().collect();
        for session in uncertain {
            let path = format!("/v1/sessions/{session}");
            match ask(port, "DELETE", &path, None).await? {
                Answer::Response(200..=204 | 404 | 410, _) => {}
                other => bail!("DELETE {path}: {other:?}"),
            }
        }
        Ok(())
    }
}

/// Names and incarnations of all sessions, as the daemon lists them.
pub(crate) async fn listed(port: u16) -> anyhow::Result<Vec<(String, u64)>> {
    let list = must(port, "GET", "/v1/sessions", None).await?;
    let sessions = list.get("sessions").unwrap_or(&list);
    let Some(sessions) = sessions.as_array() else {
        bail!("no list of sessions: {list}");
    };
    let mut found = Vec::new();
    for session in sessions {
        let (Some(name), Some(incarnation)) = (
            session["session_id"].as_str(),
            session["incarnation"].as_u64(),
        ) else {
            bail!("a session without a name: {session}");
        };
        found.push((name.to_owned(), incarnation));
    }
    found.sort();
    Ok(found)
}

/// The output of a command, which must succeed.
pub(crate) async fn output(port: u16, session: &str, cmd: &str) -> anyhow::Result<String> {
    let path = format!("/v1/sessions/{session}/exec");
    let result = must(port, "POST", &path, Some(&json!({ "cmd": cmd }))).await?;
    ensure!(result["exit_code"] == 0, "{cmd} in {session}: {result}");
    let stdout = result.get("stdout").and_then(Value::as_str);
    Ok(stdout.unwrap_or_default().to_owned())
}
