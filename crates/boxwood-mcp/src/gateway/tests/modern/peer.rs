//! A fake MCP server of the legacy or modern protocol version, or of both.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::gateway::tests::fake_servers::{Ends, Pipe, ServerRecord, pipe};
use crate::protocol_versions::{CLIENT_CAPABILITIES, LOG_LEVEL, SUBSCRIPTION, VERSION};

/// The protocol versions that a server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway::tests) enum Versions {
    Legacy,
    Modern,
    Both,
}

pub(super) fn start(process: &str, versions: Versions, record: &ServerRecord) -> Pipe {
    let (pipe, ends) = pipe();
    let Ends {
        output,
        mut input,
        exit,
    } = ends;
    let peer = Peer {
        process: process.to_owned(),
        versions,
        record: record.clone(),
        output,
        pending: Arc::default(),
        subscriptions: Arc::default(),
    };
    tokio::spawn(async move {
        let mut rest = Vec::new();
        while let Some(bytes) = input.recv().await {
            rest.extend_from_slice(&bytes);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let message: Value = serde_json::from_slice(&line).expect("one message a line");
                peer.handle(message);
            }
        }
        drop(peer);
        let _ = exit.send(true);
    });
    pipe
}

#[derive(Clone)]
struct Peer {
    process: String,
    versions: Versions,
    record: ServerRecord,
    output: mpsc::Sender<Bytes>,
    pending: Arc<Mutex<BTreeMap<u64, oneshot::Sender<Value>>>>,
    subscriptions: Arc<Mutex<Vec<Value>>>,
}

impl Peer {
    async fn send(&self, message: Value) {
        let _ = self.output.send(format!("{message}\n").into()).await;
    }

    async fn notify(&self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    fn handle(&self, message: Value) {
        let Some(method) = message["method"].as_str() else {
            let number = message["id"].as_u64().expect("a numeric id");
            let pending = self.pending.lock().expect("lock").remove(&number);
            let answer = message.get("result").unwrap_or(&message["error"]).clone();
            drop(pending.map(|pending| pending.send(answer)));
            return;
        };
        let process = &self.process;
        let detail = match method {
            "notifications/cancelled" => message["params"]["requestId"].to_string(),
            "tools/call" => message["params"]["name"].to_string(),
            "logging/setLevel" => message["params"]["level"].to_string(),
            "initialize" => message["params"]["capabilities"].to_string(),
            _ => String::new(),
        };
        self.record.add(format!("{process} {method} {detail}"));
        if let Some(vendor) = message.get("vendor") {
            self.record.add(format!("{process} vendor {vendor}"));
        }
        if method == "notifications/initialized" && self.record.is_chatty.load(Ordering::SeqCst) {
            tokio::spawn(self.clone().chat());
        }
        if message.get("id").is_none() {
            return;
        }
        let peer = self.clone();
        tokio::spawn(async move { peer.request(&message).await });
    }

    async fn chat(self) {
        while !self.output.is_closed() {
            self.notify("notifications/vendor", json!({})).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn request(&self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        let params = &message["params"];
        let is_modern = params["_meta"].get(VERSION).is_some();
        let is_known = match self.versions {
            Versions::Legacy => method != "server/discover",
            Versions::Modern => is_modern && method != "initialize",
            Versions::Both => true,
        };
        let outcome = match (is_known, is_modern) {
            (false, _) => Err((-32601, "no such method")),
            (true, true) if self.versions == Versions::Legacy => {
                panic!("received a modern request: {message}")
            }
            (true, true) => self.modern(method, params, &message["id"]).await,
            (true, false) => self.legacy(method, params).await,
        };
        let id = &message["id"];
        self.send(match outcome {
            Ok(Value::Null) => return,
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err((code, text)) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text, "data": {"kept": 1}}}),
        })
        .await;
    }

    async fn legacy(&self, method: &str, params: &Value) -> Outcome {
        Ok(match method {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {
                    "tools": {"listChanged": true}, "prompts": {}, "completions": {}, "logging": {},
                    "resources": {"subscribe": true, "listChanged": true},
                },
                "serverInfo": {"name": "old", "version": "1"},
                "instructions": "be kind",
            }),
            _ if *self.record.unanswered.lock().expect("lock") == Some((&self.process, method)) => {
                return Ok(Value::Null);
            }
            "tools/call" => return self.call(params).await,
            "resources/read" if params["uri"] != "memo:one" => {
                return Err((-32002, "no such resource"));
            }
            _ => return self.common(method, params),
        })
    }

    async fn modern(&self, method: &str, params: &Value, id: &Value) -> Outcome {
        assert!(
            params["_meta"].get(CLIENT_CAPABILITIES).is_some(),
            "{params}"
        );
        let mut result = match method {
            "server/discover" => json!({
                "supportedVersions": ["2026-07-28"], "ttlMs": 5, "cacheScope": "public",
                "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "resources": {}, "logging": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}},
            }),
            "subscriptions/listen" => {
                self.subscriptions.lock().expect("lock").push(id.clone());
                let params =
                    json!({"_meta": {SUBSCRIPTION: id}, "notifications": params["notifications"]});
                self.notify("notifications/subscriptions/acknowledged", params)
                    .await;
                return Ok(Value::Null);
            }
            "tools/call" => return self.modern_call(params).await,
            "resources/read" if params["uri"] != "memo:one" => {
                return Err((-32602, "no such resource"));
            }
            _ => self.common(method, params)?,
        };
        result["resultType"] = json!("complete");
        Ok(result)
    }

    fn common(&self, method: &str, params: &Value) -> Outcome {
        Ok(match method {
            "tools/list" => {
                let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}, "later": {"kept": true}});
                if params["cursor"] == "more" {
                    json!({"tools": [tool("secret"), tool("hang")]})
                } else {
                    let region = json!({"name": "region", "inputSchema": {"type": "object",
                        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}});
                    let mut tools = vec![tool("echo"), region];
                    tools.extend(self.record.more_tools.lock().expect("lock").clone());
                    json!({"tools": tools, "nextCursor": "more"})
                }
            }
            "prompts/list" => json!({"prompts": [{"name": "greet"}]}),
            "prompts/get" => json!({"messages": [], "prompt": params["name"]}),
            "resources/list" => json!({"resources": [{"uri": "memo:one", "name": "one"}]}),
            "resources/templates/list" => {
                json!({"resourceTemplates": [{"uriTemplate": "memo:{id}", "name": "any"}]})
            }
            "resources/read" => json!({"contents": [{"uri": params["uri"], "text": "hello"}]}),
            "completion/complete" => json!({"completion": {"values": [params["ref"].to_string()]}}),
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" | "ping" => {
                json!({})
            }
            _ => return Err((-32601, "no such method")),
        })
    }

    fn echo(&self, params: &Value) -> Value {
        json!({"content": [], "arguments": params["arguments"], "meta": params["_meta"], "by": self.process})
    }

    /// Legacy protocol version.
    async fn call(&self, params: &Value) -> Outcome {
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "hang" => return Ok(Value::Null),
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                self.notify(
                    "notifications/progress",
                    json!({"progressToken": token, "progress": 1}),
                )
                .await;
            }
            "log" => {
                for level in ["debug", "warning"] {
                    self.notify(
                        "notifications/message",
                        json!({"level": level, "data": arguments["who"]}),
                    )
                    .await;
                }
            }
            "change" => {
                self.notify("notifications/tools/list_changed", json!({}))
                    .await;
            }
            "touch" => {
                self.notify(
                    "notifications/resources/updated",
                    json!({"uri": arguments["uri"]}),
                )
                .await;
            }
            "ask" => {
                let answer = self
                    .ask("elicitation/create", json!({"message": "why?"}))
                    .await;
                return Ok(json!({"answers": [answer]}));
            }
            "ask_and_tell" => {
                self.ask("elicitation/create", json!({"message": "why?"}))
                    .await;
                let token = &params["_meta"]["progressToken"];
                self.notify(
                    "notifications/progress",
                    json!({"progressToken": token, "progress": 1}),
                )
                .await;
            }
            "ask_both" => {
                let first = self.ask("elicitation/create", json!({"message": "why?"}));
                let second = self.ask("sampling/createMessage", json!({"messages": []}));
                let (first, second) = tokio::join!(first, second);
                return Ok(json!({"answers": [first, second]}));
            }
            "ask_on" => {
                let first = self
                    .ask("elicitation/create", json!({"message": "why?"}))
                    .await;
                let second = self.ask("roots/list", json!({})).await;
                return Ok(json!({"answers": [first, second]}));
            }
            "visit" => return Err((-32042, "visit")),
            _ => {}
        }
        Ok(self.echo(params))
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let (answered, answer) = oneshot::channel();
        let number = {
            let mut pending = self.pending.lock().expect("lock");
            let number = pending.keys().last().map_or(1, |last| last + 1);
            pending.insert(number, answered);
            number
        };
        self.send(json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
            .await;
        answer.await.unwrap_or_default()
    }

    async fn modern_call(&self, params: &Value) -> Outcome {
        let meta = &params["_meta"];
        match params["name"].as_str().unwrap_or_default() {
            "hang" => return Ok(Value::Null),
            "progress" => {
                let token = &meta["progressToken"];
                self.notify(
                    "notifications/progress",
                    json!({"progressToken": token, "progress": 1}),
                )
                .await;
            }
            "murmur" => {
                let params = json!({"level": "error", "data": "a secret"});
                self.notify("notifications/message", params).await;
            }
            "log" if meta.get(LOG_LEVEL).is_some() => {
                self.notify(
                    "notifications/message",
                    json!({"level": "error", "data": "oh"}),
                )
                .await;
            }
            "change" => {
                let subscriptions = self.subscriptions.lock().expect("lock").clone();
                for id in subscriptions {
                    let params = json!({"_meta": {SUBSCRIPTION: id}});
                    self.notify("notifications/tools/list_changed", params)
                        .await;
                }
            }
            "ask" => {
                let Some(answer) = params.get("inputResponses") else {
                    return Ok(
                        json!({"resultType": "input_required", "requestState": "sealed", "inputRequests": {
                        "q": {"method": "elicitation/create", "params": {"message": "why?"}}}}),
                    );
                };
                return Ok(
                    json!({"resultType": "complete", "content": [], "answers": answer, "state": params["requestState"]}),
                );
            }
            "needy" => return Err((-32021, "sampling is needed")),
            _ => {}
        }
        let mut result = self.echo(params);
        result["resultType"] = json!("complete");
        Ok(result)
    }
}

type Outcome = Result<Value, (i64, &'static str)>;
