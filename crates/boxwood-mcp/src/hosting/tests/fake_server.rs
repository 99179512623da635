//! A fake MCP server that runs as a task, with configurable misbehaviour.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::program::Pipes;
use crate::hosting::ProcessExit;

#[derive(Clone)]
pub(super) struct FakeServer {
    /// Lifetime of each run, in order. The last one repeats. `None` means that it does not exit.
    pub(super) lives: Vec<Option<Duration>>,
    /// Stops answering after this time.
    pub(super) deaf_after: Option<Duration>,
    /// Limits `deaf_after` to this run.
    pub(super) deaf_run: Option<usize>,
    /// Stops reading input after this time, without exiting.
    pub(super) closes_input_after: Option<Duration>,
    pub(super) handshake_delay: Duration,
    /// Limits `greets_after` to these runs. Empty means all.
    pub(super) slow_runs: Vec<usize>,
    /// Supports `server/discover`.
    pub(super) is_modern: bool,
    /// Number of runs that ignore `server/discover`.
    pub(super) ignores_discover: usize,
    /// Written to stderr at startup.
    pub(super) startup_stderr: &'static str,
    /// Requests the client's roots after initialization.
    pub(super) asks_for_roots: bool,
    pub(super) runs: Arc<AtomicUsize>,
}

impl Default for FakeServer {
    fn default() -> Self {
        Self {
            lives: vec![None],
            deaf_after: None,
            deaf_run: None,
            closes_input_after: None,
            handshake_delay: Duration::ZERO,
            slow_runs: Vec::new(),
            is_modern: false,
            ignores_discover: 0,
            startup_stderr: "",
            asks_for_roots: false,
            runs: Arc::default(),
        }
    }
}

impl FakeServer {
    pub(super) fn living(lives: impl IntoIterator<Item = Option<u64>>) -> Self {
        let lives = lives.into_iter().map(|life| life.map(Duration::from_secs));
        Self {
            lives: lives.collect(),
            ..Self::default()
        }
    }

    pub(super) async fn serve(self, mut pipes: Pipes) -> ProcessExit {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let life = self.lives.get(run).or(self.lives.last()).copied().flatten();
        pipes.write_stderr(self.startup_stderr);
        let began = Instant::now();
        if let Some(after) = self.closes_input_after {
            let process = Arc::clone(&pipes.process);
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                process.refuse_input();
            });
        }
        let talking = async {
            let mut tools = vec!["greet", "wait", "env"];
            while let Some(bytes) = pipes.input.recv().await {
                for line in bytes.split(|byte| *byte == b'\n') {
                    let may_be_deaf = self.deaf_run.is_none_or(|deaf| deaf == run);
                    let deaf_after = self.deaf_after.filter(|_| may_be_deaf);
                    let is_deaf = deaf_after.is_some_and(|after| began.elapsed() >= after);
                    if line.is_empty() || is_deaf {
                        continue;
                    }
                    let message: Value = serde_json::from_slice(line).expect("JSON");
                    let ignored = run < self.ignores_discover;
                    if ignored && message["method"] == "server/discover" {
                        continue;
                    }
                    let is_slow = self.slow_runs.is_empty() || self.slow_runs.contains(&run);
                    if is_slow && message["method"] == "initialize" {
                        tokio::time::sleep(self.handshake_delay).await;
                    }
                    self.answer(&message, &pipes, &mut tools).await;
                }
            }
        };
        match life {
            None => talking.await,
            Some(life) => drop(tokio::time::timeout(life, talking).await),
        }
        ProcessExit {
            exit_code: Some(3),
            why: None,
        }
    }

    async fn answer(&self, message: &Value, pipes: &Pipes, tools: &mut Vec<&str>) {
        let method = message["method"].as_str().unwrap_or_default();
        let params = &message["params"];
        if method == "notifications/initialized" && self.asks_for_roots {
            pipes.write_stdout(
                &json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}).to_string(),
            );
        }
        if message.get("id").is_none() || method.is_empty() {
            return;
        }
        // Reveals its variables, as some servers do.
        let env = &pipes.process.spec.env;
        let told = env.get("TOLD").map_or("1", String::as_str);
        let result = match method {
            "initialize" => Ok(json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "fake", "version": told},
            })),
            "server/discover" if self.is_modern => Ok(json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools = tools.iter().map(|name| {
                    let description = format!("tool {told}");
                    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
                });
                Ok(json!({"tools": tools.collect::<Vec<_>>()}))
            }
            "tools/call" if params["name"] == "refuse" => Err(json!({
                "code": params["arguments"]["code"],
                "message": format!("not with {told}"),
            })),
            "tools/call" => Ok(self.call(params, pipes, tools).await),
            _ => Err(json!({"code": -32601, "message": "unknown"})),
        };
        let mut answer = json!({"jsonrpc": "2.0", "id": message["id"]});
        match result {
            Ok(result) => answer["result"] = result,
            Err(error) => answer["error"] = error,
        }
        pipes.write_stdout(&answer.to_string());
    }

    async fn call(&self, params: &Value, pipes: &Pipes, tools: &mut Vec<&str>) -> Value {
        let text = match params["name"].as_str() {
            // Blocks the server, so that it answers nothing else meanwhile.
            Some("wait") => {
                let seconds = params["arguments"]["seconds"].as_u64().unwrap_or_default();
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                "waited".to_owned()
            }
            Some("env") => json!(pipes.process.spec.env).to_string(),
            Some("grow") => {
                tools.push("grown");
                let changed =
                    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                pipes.write_stdout(&changed.to_string());
                "grown".to_owned()
            }
            _ => "hello".to_owned(),
        };
        json!({"content": [{"type": "text", "text": text}]})
    }
}
