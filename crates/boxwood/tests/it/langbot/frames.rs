//! Ten thousand mutated frames on each channel of a real daemon.
//!
//! The daemon must not panic, hang, leak descriptors or change files outside the allowed root.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use super::mutator::Mutator;
use super::recording::{Step, plant, read};
use super::replay::{Socket, connect};
use crate::support::command::boxwood;
use crate::support::daemon::Daemon;

const FRAMES: usize = 10_000;
/// Frames between two requests that must get a response.
const ROUND: usize = 50;

pub(crate) struct Playground {
    pub(crate) daemon: Daemon,
    pub(crate) tree: TempDir,
    around: BTreeMap<String, String>,
}

impl Playground {
    /// A daemon whose LangBot may use the tree `open`. The tree `closed` beside it must not change.
    pub(crate) fn new() -> Self {
        let tree = tempfile::tempdir().expect("a directory");
        plant(&tree.path().join("open"));
        plant(&tree.path().join("closed"));
        let open = tree.path().join("open");
        let roots = format!("[{:?}]", open.to_str().expect("plain"));
        let skills = open.join("skills");
        let daemon = Daemon::start_with(
            tempfile::tempdir().expect("a directory"),
            &[
                ("BOXWOOD_LANGBOT__ALLOWED_ROOTS", roots.as_str()),
                ("BOXWOOD_LANGBOT__ROOT", open.to_str().expect("plain")),
                ("BOXWOOD_SKILLS__ROOT", skills.to_str().expect("plain")),
                ("BOXWOOD_LOG__FILTER", "error"),
            ],
        );
        let around = contents(&tree.path().join("closed"));
        Self {
            daemon,
            tree,
            around,
        }
    }

    /// Recorded requests to mutate, with harmless commands.
    pub(crate) fn requests(&self, recording: &str) -> Vec<Value> {
        let steps = read(recording, &self.tree.path().join("open"));
        let mut requests: Vec<Value> = steps
            .into_iter()
            .filter_map(|step| match step {
                Step::Ask { request } => Some(request),
                _ => None,
            })
            .collect();
        for request in &mut requests {
            if let Some(command) = request.pointer_mut("/data/cmd") {
                *command = json!("echo hi");
            }
            if let Some(timeout) = request.pointer_mut("/data/timeout_sec") {
                *timeout = json!(2);
            }
        }
        requests
    }

    pub(crate) fn settle(self) {
        assert_eq!(contents(&self.tree.path().join("closed")), self.around);
    }
}

fn contents(tree: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![tree.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                found.insert(path.display().to_string(), String::new());
                open.push(path);
            } else {
                let text = std::fs::read_to_string(&path).expect("readable");
                found.insert(path.display().to_string(), text);
            }
        }
    }
    found
}

#[test]
fn mutated_frames_of_sdk_0_4_do_no_harm() {
    rpc("v0_4.jsonl", &[], 0x0051_7e01);
}

#[test]
fn mutated_frames_of_sdk_0_7_do_no_harm() {
    let headers = [("X-LangBot-Instance-Id".to_owned(), "platform-1".to_owned())];
    rpc("v0_7.jsonl", &headers, 0x0051_7e02);
}

fn rpc(recording: &str, headers: &[(String, String)], seed: u64) {
    let playground = Playground::new();
    let requests = playground.requests(recording);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut line = Line::new(&playground.daemon, "/rpc/ws", headers).await;
        line.all_quiet().await;
        let before = settled_files(playground.daemon.pid()).await;
        let mut mutator = Mutator::new(seed);
        for _ in 0..FRAMES / ROUND {
            for _ in 0..ROUND {
                let at = mutator.below(requests.len());
                let bent = mutator.bend(&requests[at]);
                line.say(frame(&mut mutator, &bent)).await;
            }
            line.must_answer().await;
        }
        line.all_quiet().await;
        let after = settled_files(playground.daemon.pid()).await;
        assert!(after <= before + 8, "{before} open files became {after}");
    });
    playground.settle();
}

/// Mostly whole messages with odd contents, sometimes broken ones, now and then something else.
fn frame(mutator: &mut Mutator, bent: &Value) -> Message {
    match mutator.below(20) {
        0..=13 => Message::text(bent.to_string()),
        14..=17 => Message::text(mutator.break_text(&bent.to_string())),
        18 => Message::Ping(vec![7; mutator.below(100)].into()),
        _ => Message::binary(bent.to_string().into_bytes()),
    }
}

#[test]
fn mutated_frames_on_the_relay_do_no_harm() {
    let playground = Playground::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut rpc = Line::new(&playground.daemon, "/rpc/ws", &[]).await;
        rpc.ask("box_create_session", json!({"session_id": "r", "cmd": ""}))
            .await;
        let spec = json!({"session_id": "r", "spec": {"command": "cat"}});
        rpc.ask("box_start_managed_process", spec).await;
        let mut mutator = Mutator::new(0x0051_7e03);
        let path = "/v1/sessions/r/managed-process/ws";
        let before = settled_files(playground.daemon.pid()).await;
        for round in 0..FRAMES / ROUND {
            let mut relay = connect(&host(&playground.daemon), path, &[], round % 2 == 0)
                .await
                .expect("attached");
            for _ in 0..ROUND {
                let text = "x".repeat(mutator.below(200));
                let line = mutator.break_text(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":1,\"m\":\"{text}\"}}"
                ));
                let message = match mutator.below(20) {
                    0..=16 => Message::text(line),
                    17 => Message::binary(line.into_bytes()),
                    18 => Message::Pong(vec![1; mutator.below(100)].into()),
                    _ => Message::text("y".repeat(200_000)),
                };
                relay.send(message).await.expect("sent");
            }
            let last = format!("last of {round}");
            relay.send(Message::text(last.clone())).await.expect("sent");
            let answer = async {
                loop {
                    match relay.next().await.expect("open").expect("no error") {
                        Message::Text(text) if text.as_str() == last => return,
                        _ => {}
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(30), answer)
                .await
                .expect("the echo comes");
            // Half of the clients disconnect without a close frame.
            if round % 2 == 0 {
                relay.close(None).await.expect("closed");
            }
        }
        rpc.ask("box_delete_session", json!({"session_id": "r"}))
            .await;
        rpc.all_quiet().await;
        let after = settled_files(playground.daemon.pid()).await;
        assert!(after <= before + 8, "{before} open files became {after}");
    });
    playground.settle();
}

/// The number of open files of the daemon once it is stable. The daemon prewarms and removes boxes in the
/// background.
async fn settled_files(pid: u32) -> usize {
    let mut count = open_files(pid);
    let mut same = 0;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = open_files(pid);
        same = if now == count { same + 1 } else { 0 };
        count = now;
        if same == 8 {
            break;
        }
    }
    count
}

fn open_files(pid: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the daemon lives");
    files.count()
}

fn host(daemon: &Daemon) -> String {
    daemon.url().trim_start_matches("http://").to_owned()
}

/// A connection that is reopened after the daemon has closed it.
struct Line {
    host: String,
    path: String,
    headers: Vec<(String, String)>,
    socket: Socket,
    last_number: u64,
}

impl Line {
    async fn new(daemon: &Daemon, path: &str, headers: &[(String, String)]) -> Self {
        let host = host(daemon);
        Self {
            socket: connect(&host, path, headers, false)
                .await
                .expect("connected"),
            host,
            path: path.to_owned(),
            headers: headers.to_vec(),
            last_number: 1 << 40,
        }
    }

    async fn again(&mut self) {
        self.socket = connect(&self.host, &self.path, &self.headers, false)
            .await
            .expect("the daemon takes new connections");
    }

    async fn say(&mut self, message: Message) {
        // The daemon may close the connection after an invalid frame.
        if self.socket.send(message).await.is_err() {
            self.again().await;
        }
    }

    /// Sends valid requests until one is answered. The first may be parsed as part of a broken message.
    async fn must_answer(&mut self) {
        for _ in 0..3 {
            if self
                .try_ask("__ping", json!({}), Duration::from_secs(5))
                .await
                .is_some()
            {
                return;
            }
        }
        panic!("the daemon no longer answers");
    }

    async fn ask(&mut self, action: &str, data: Value) -> Value {
        let answer = self.try_ask(action, data, Duration::from_mins(1)).await;
        answer.unwrap_or_else(|| panic!("{action} was not answered"))
    }

    async fn try_ask(&mut self, action: &str, data: Value, within: Duration) -> Option<Value> {
        self.last_number += 1;
        let number = self.last_number;
        let context = json!({"instance_uuid": "platform-1", "workspace_uuid": "ws-1", "placement_generation": 1});
        let request = json!({"seq_id": number, "action": action, "data": data, "context": context});
        self.say(Message::text(request.to_string())).await;
        let answer = async {
            while let Some(Ok(message)) = self.socket.next().await {
                let Message::Text(text) = message else {
                    continue;
                };
                let answer: Value = serde_json::from_str(&text).expect("answers are JSON");
                let message = answer["message"].as_str().unwrap_or_default();
                assert!(
                    !message.contains("internal error of the daemon"),
                    "a panic: {answer}"
                );
                if answer["seq_id"] == number {
                    return Some(answer);
                }
            }
            None
        };
        match tokio::time::timeout(within, answer).await {
            Ok(Some(answer)) => Some(answer),
            Ok(None) => {
                self.again().await;
                None
            }
            Err(_) => None,
        }
    }

    /// Ends every session and waits until nothing is left of them.
    async fn all_quiet(&mut self) {
        self.again().await;
        let url = format!("http://{}", self.host);
        for _ in 0..100 {
            let listed = boxwood()
                .env("BOXWOOD_URL", &url)
                .args(["ls", "-o", "json"])
                .output()
                .expect("boxwood runs");
            let sessions: Vec<Value> = serde_json::from_slice(&listed.stdout).expect("a list");
            if sessions.is_empty() {
                // Those that are being made, or are going, are in no list.
                let resources = &self.health().await["resources"];
                let moving = ["creating_session_tasks", "closing_session_tasks"];
                if moving.iter().all(|count| resources[count] == 0) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let ids = sessions
                .iter()
                .filter_map(|session| session["session_id"].as_str());
            // One that ends by itself meanwhile is no failure.
            let _ = boxwood()
                .env("BOXWOOD_URL", &url)
                .args(["rm", "--"])
                .args(ids)
                .output();
        }
        panic!("sessions do not end");
    }

    async fn health(&self) -> Value {
        let mut stream = TcpStream::connect(&self.host).await.expect("connected");
        let request = b"GET /healthz HTTP/1.0\r\n\r\n";
        stream.write_all(request).await.expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }
}
