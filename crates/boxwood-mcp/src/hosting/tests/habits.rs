//! A server as a task: it speaks MCP as real ones do, with the bad habits it is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::program::Pipes;
use crate::hosting::Gone;

#[derive(Clone)]
pub(super) struct Habits {
    /// How long each run lives, in order; later runs live as the last of them. None lives on.
    pub(super) lives: Vec<Option<Duration>>,
    /// Says nothing any more after this.
    pub(super) deaf_after: Option<Duration>,
    /// Only this run does, when there is one.
    pub(super) deaf_run: Option<usize>,
    /// Takes no more input after this, and lives on.
    pub(super) closes_input_after: Option<Duration>,
    pub(super) greets_after: Duration,
    /// Only these runs are so slow; all of them when there are none.
    pub(super) slow_runs: Vec<usize>,
    /// Knows `server/discover`.
    pub(super) is_modern: bool,
    /// So many runs say nothing at all to `server/discover`.
    pub(super) ignores_discover: usize,
    /// Says this on stderr first.
    pub(super) complains: &'static str,
    /// Asks its client for its roots once it is initialized.
    pub(super) asks_for_roots: bool,
    pub(super) runs: Arc<AtomicUsize>,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            lives: vec![None],
            deaf_after: None,
            deaf_run: None,
            closes_input_after: None,
            greets_after: Duration::ZERO,
            slow_runs: Vec::new(),
            is_modern: false,
            ignores_discover: 0,
            complains: "",
            asks_for_roots: false,
            runs: Arc::default(),
        }
    }
}

impl Habits {
    pub(super) fn living(lives: impl IntoIterator<Item = Option<u64>>) -> Self {
        let lives = lives.into_iter().map(|life| life.map(Duration::from_secs));
        Self {
            lives: lives.collect(),
            ..Self::default()
        }
    }

    pub(super) async fn serve(self, mut pipes: Pipes) -> Gone {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let life = self.lives.get(run).or(self.lives.last()).copied().flatten();
        pipes.complain(self.complains);
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
                        tokio::time::sleep(self.greets_after).await;
                    }
                    self.answer(&message, &pipes, &mut tools).await;
                }
            }
        };
        match life {
            None => talking.await,
            Some(life) => drop(tokio::time::timeout(life, talking).await),
        }
        Gone {
            exit_code: Some(3),
            why: None,
        }
    }

    async fn answer(&self, message: &Value, pipes: &Pipes, tools: &mut Vec<&str>) {
        let method = message["method"].as_str().unwrap_or_default();
        let params = &message["params"];
        if method == "notifications/initialized" && self.asks_for_roots {
            pipes.say(&json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}).to_string());
        }
        if message.get("id").is_none() || method.is_empty() {
            return;
        }
        // Some tell everybody what they were given.
        let env = &pipes.process.spec.env;
        let told = env.get("TOLD").map_or("1", String::as_str);
        let result = match method {
            "initialize" => Ok(json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "habits", "version": told},
            })),
            "server/discover" if self.is_modern => Ok(json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "habits", "version": "1"},
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
        pipes.say(&answer.to_string());
    }

    async fn call(&self, params: &Value, pipes: &Pipes, tools: &mut Vec<&str>) -> Value {
        let text = match params["name"].as_str() {
            // With its only hands, so nothing else is answered meanwhile.
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
                pipes.say(&changed.to_string());
                "grown".to_owned()
            }
            _ => "hello".to_owned(),
        };
        json!({"content": [{"type": "text", "text": text}]})
    }
}
