//! Plays a recording to a real daemon with real boxes.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::compare::Differences;
use super::recording::{Step, plant, read};
use crate::support::daemon::Daemon;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

#[test]
fn the_sdk_0_4_recording_gets_responses_of_the_recorded_shape() {
    play("v0_4.jsonl", &[]);
}

#[test]
fn the_sdk_0_7_recording_gets_responses_of_the_recorded_shape() {
    play("v0_7.jsonl", &[("X-LangBot-Instance-Id", "platform-1")]);
}

fn play(recording: &str, headers: &[(&str, &str)]) {
    let tree = tempfile::tempdir().expect("a directory");
    plant(tree.path());
    let daemon = Daemon::start();
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let steps = read(recording, tree.path());
        let mut player = Player::new(&daemon, recording, &headers).await;
        for step in steps {
            player.take(step).await;
        }
        player.differences.settle();
    });
}

struct Player {
    host: String,
    rpc: Socket,
    relay: Option<Socket>,
    /// Requests that were sent and whose answers were not compared yet.
    requests: HashMap<u64, Value>,
    /// Answers that came before it was their turn.
    early: HashMap<u64, Value>,
    differences: Differences,
}

impl Player {
    async fn new(daemon: &Daemon, recording: &str, headers: &[(String, String)]) -> Self {
        let host = daemon.url().trim_start_matches("http://").to_owned();
        let rpc = connect(&host, "/rpc/ws", headers, false).await;
        Self {
            rpc: rpc.expect("the daemon speaks RPC"),
            host,
            relay: None,
            requests: HashMap::new(),
            early: HashMap::new(),
            differences: Differences::of(recording),
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Ask { request } => {
                let seq_id = request["seq_id"].as_u64().expect("a number");
                self.send(&request).await;
                self.requests.insert(seq_id, request);
            }
            Step::Hear { case, answer } => {
                let seq_id = answer["seq_id"].as_u64().expect("a number");
                // The request may have been too long to be recorded.
                let Some(request) = self.requests.remove(&seq_id) else {
                    return;
                };
                let got = self.settled_answer(seq_id, &request, &answer).await;
                self.differences
                    .note(&case, action_of(&request), &answer, &got);
            }
            Step::HearAnything { seq_id } => {
                if let Some(request) = self.requests.remove(&seq_id) {
                    let got = self.answer_to(seq_id, action_of(&request)).await;
                    assert_eq!(got["code"], 0, "{request}");
                }
            }
            Step::Attach {
                case,
                path,
                headers,
                subprotocol,
                accepted,
            } => {
                if let Some(mut old) = self.relay.take() {
                    // The daemon may have closed it first.
                    let _ = old.close(None).await;
                    while let Some(Ok(_)) = old.next().await {}
                }
                let opened = connect(&self.host, &path, &headers, subprotocol).await;
                // In the shape of an answer, so that both are compared alike.
                let outcome = |ok: bool| json!({"code": i32::from(!ok), "message": "", "data": {}});
                self.differences.note(
                    &case,
                    "attach",
                    &outcome(accepted),
                    &outcome(opened.is_ok()),
                );
                self.relay = opened.ok();
            }
            Step::Send { line } => {
                // A failed attachment was recorded as a difference above.
                if let Some(relay) = &mut self.relay {
                    relay.send(Message::text(line)).await.expect("sent");
                }
            }
            Step::Receive { case, line } => {
                if let Some(relay) = &mut self.relay {
                    let got = text_of(relay, &case).await;
                    assert_eq!(same_line(&got), same_line(&line), "{case}");
                }
            }
        }
    }

    async fn send(&mut self, request: &Value) {
        let text = Message::text(request.to_string());
        self.rpc.send(text).await.expect("sent");
    }

    /// Waits for the exit of a program that had ended in the recording, because the pauses of the recording are not
    /// replayed.
    async fn settled_answer(&mut self, seq_id: u64, request: &Value, recorded: &Value) -> Value {
        let status = |answer: &Value| answer["data"]["status"].as_str().map(str::to_owned);
        let mut got = self.answer_to(seq_id, action_of(request)).await;
        for _ in 0..60 {
            let early = status(recorded).as_deref() == Some("exited")
                && status(&got).as_deref() == Some("running");
            if !early || action_of(request) != "box_get_managed_process" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.send(request).await;
            got = self.answer_to(seq_id, action_of(request)).await;
        }
        got
    }

    async fn answer_to(&mut self, seq_id: u64, action: &str) -> Value {
        loop {
            if let Some(answer) = self.early.remove(&seq_id) {
                return answer;
            }
            let text = text_of(&mut self.rpc, action).await;
            let answer: Value = serde_json::from_str(&text).expect("an answer is JSON");
            let number = answer["seq_id"].as_u64().expect("a number");
            self.early.insert(number, answer);
        }
    }
}

fn action_of(request: &Value) -> &str {
    request["action"].as_str().expect("an action")
}

/// A JSON line may be spelt in many ways.
fn same_line(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| Value::from(line.trim_end_matches('\n')))
}

async fn text_of(socket: &mut Socket, what: &str) -> String {
    let next = async {
        loop {
            match socket.next().await.expect("open").expect("no error") {
                Message::Text(text) => return text.to_string(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{what}: {other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), next)
        .await
        .unwrap_or_else(|_| panic!("{what} was not answered within a minute"))
}

pub(crate) async fn connect(
    host: &str,
    path: &str,
    headers: &[(String, String)],
    subprotocol: bool,
) -> Result<Socket, tokio_tungstenite::tungstenite::Error> {
    let mut request = format!("ws://{host}{path}").into_client_request()?;
    let header = |text: &str| HeaderValue::from_str(text).expect("a header");
    for (name, value) in headers {
        let name = HeaderName::try_from(name.as_str()).expect("a header's name");
        request.headers_mut().insert(name, header(value));
    }
    if subprotocol {
        let name = HeaderName::from_static("sec-websocket-protocol");
        request.headers_mut().insert(name, header("mcp"));
    }
    Ok(connect_async(request).await?.0)
}
