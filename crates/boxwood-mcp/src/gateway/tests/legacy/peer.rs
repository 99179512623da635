//! A fake legacy MCP server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::gateway::tests::fake_servers::{Ends, Pipe, ServerRecord, pipe};

/// Runs until its input ends or the tool `die` is called.
pub(super) fn start(name: &str, record: &ServerRecord) -> Pipe {
    let (pipe, ends) = pipe();
    let Ends {
        output,
        input,
        exit,
    } = ends;
    let peer = Peer {
        name: name.to_owned(),
        record: record.clone(),
        output,
        pending_calls: Arc::default(),
        calls: Arc::default(),
    };
    tokio::spawn(async move {
        peer.run(input).await;
        drop(peer);
        let _ = exit.send(true);
    });
    pipe
}

#[derive(Clone)]
struct Peer {
    name: String,
    record: ServerRecord,
    output: mpsc::Sender<Bytes>,
    /// Calls that wait for a client response, by the id of the server request.
    pending_calls: Arc<Mutex<BTreeMap<u64, Value>>>,
    calls: Arc<Mutex<u64>>,
}

impl Peer {
    async fn run(&self, mut lines: mpsc::Receiver<Bytes>) {
        let mut rest = Vec::new();
        while let Some(bytes) = lines.recv().await {
            rest.extend_from_slice(&bytes);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let message: Value = serde_json::from_slice(&line).expect("one message a line");
                if message["params"]["name"] == "die" {
                    return;
                }
                self.handle(message).await;
            }
        }
    }

    async fn send(&self, message: Value) {
        let mut line = message.to_string();
        line.push('\n');
        let _ = self.output.send(line.into()).await;
    }

    async fn answer(&self, id: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "result": result}))
            .await;
    }

    async fn handle(&self, message: Value) {
        let method = message["method"].as_str().unwrap_or("answer").to_owned();
        let params = &message["params"];
        let detail = match method.as_str() {
            "logging/setLevel" => &params["level"],
            "resources/subscribe" | "resources/unsubscribe" => &params["uri"],
            "notifications/cancelled" => &params["requestId"],
            "tools/call" => &params["name"],
            "answer" => &message["id"],
            _ => &Value::Null,
        };
        self.record.add(format!("{method} {detail}"));
        let id = &message["id"];
        match method.as_str() {
            "initialize" => {
                let pause = *self.record.initialize_delay.lock().expect("lock");
                tokio::time::sleep(pause).await;
                let result = json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}, "logging": {}},
                    "serverInfo": {"name": self.name, "version": "1"},
                    "instructions": "be kind",
                    "notInTheSchema": {"kept": [1, 2]},
                });
                self.answer(id, result).await;
            }
            "tools/list" => {
                let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
                let tools = ["echo", "secret"].map(tool);
                self.answer(id, json!({"tools": tools})).await;
            }
            "tools/call" => {
                let peer = self.clone();
                tokio::spawn(async move { peer.call(&message).await });
            }
            "answer" => {
                let call = id
                    .as_u64()
                    .and_then(|id| self.pending_calls.lock().expect("lock").remove(&id));
                let call = call.expect("a pending call");
                let answer = message.get("result").or(message.get("error")).cloned();
                self.answer(&call, json!({"answered": answer})).await;
            }
            _ if id.is_null() => {}
            _ => self.answer(id, json!({})).await,
        }
    }

    async fn call(&self, message: &Value) {
        let (id, params) = (&message["id"], &message["params"]);
        let arguments = &params["arguments"];
        let token = &params["_meta"]["progressToken"];
        match params["name"].as_str().unwrap_or_default() {
            "echo" => {
                let wait = arguments["wait_ms"].as_u64().unwrap_or_default();
                tokio::time::sleep(Duration::from_millis(wait)).await;
                self.answer(id, json!({"echo": arguments, "unknown": true}))
                    .await;
            }
            "progress" => {
                for step in 1..=3 {
                    let wait = arguments["wait_ms"].as_u64().unwrap_or_default();
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    let params = json!({"progressToken": token, "progress": step, "message": arguments["who"]});
                    self.notify("notifications/progress", params).await;
                }
                self.answer(id, json!({"who": arguments["who"]})).await;
            }
            "log" => {
                for level in ["debug", "info", "error"] {
                    let params = json!({"level": level, "data": arguments["who"]});
                    self.notify("notifications/message", params).await;
                }
                self.answer(id, json!({})).await;
            }
            "touch" => {
                let params = json!({"uri": arguments["uri"]});
                self.notify("notifications/resources/updated", params).await;
                self.answer(id, json!({})).await;
            }
            "ask" => {
                let number = {
                    let mut calls = self.calls.lock().expect("lock");
                    *calls += 1;
                    *calls
                };
                self.pending_calls
                    .lock()
                    .expect("lock")
                    .insert(number, id.clone());
                self.send(json!({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": {"message": "why?"}}))
                    .await;
            }
            "big" => {
                let bytes = arguments["bytes"].as_u64().unwrap_or_default();
                let text = "x".repeat(usize::try_from(bytes).expect("a size"));
                self.answer(id, json!({"text": text})).await;
            }
            // `hang` and unknown tools get no response.
            _ => {}
        }
    }

    async fn notify(&self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }
}
