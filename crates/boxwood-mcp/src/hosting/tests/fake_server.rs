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
    pub(super) lifetimes: Vec<Option<Duration>>,
    /// Stops responding after this time.
    pub(super) stops_responding_after: Option<Duration>,
    /// Limits `stops_responding_after` to this run.
    pub(super) unresponsive_run: Option<usize>,
    /// Stops reading input after this time, without exiting.
    pub(super) closes_input_after: Option<Duration>,
    pub(super) handshake_delay: Duration,
    /// Limits `handshake_delay` to these runs. Empty means all.
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
            lifetimes: vec![None],
            stops_responding_after: None,
            unresponsive_run: None,
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
    pub(super) fn with_lifetimes(lifetimes: impl IntoIterator<Item = Option<u64>>) -> Self {
        let lifetimes = lifetimes
            .into_iter()
            .map(|lifetime| lifetime.map(Duration::from_secs));
        Self {
            lifetimes: lifetimes.collect(),
            ..Self::default()
        }
    }

    pub(super) async fn serve(self, mut pipes: Pipes) -> ProcessExit {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let lifetime = self
            .lifetimes
            .get(run)
            .or(self.lifetimes.last())
            .copied()
            .flatten();
        pipes.write_stderr(self.startup_stderr);
        let started_at = Instant::now();
        if let Some(after) = self.closes_input_after {
            let process = Arc::clone(&pipes.process);
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                process.refuse_input();
            });
        }
        let serving = async {
            let mut tools = vec!["greet", "wait", "env"];
            while let Some(bytes) = pipes.input.recv().await {
                for line in bytes.split(|byte| *byte == b'\n') {
                    let may_stop = self
                        .unresponsive_run
                        .is_none_or(|unresponsive| unresponsive == run);
                    let stops_responding_after = self.stops_responding_after.filter(|_| may_stop);
                    let is_unresponsive =
                        stops_responding_after.is_some_and(|after| started_at.elapsed() >= after);
                    if line.is_empty() || is_unresponsive {
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
        match lifetime {
            None => serving.await,
            Some(lifetime) => drop(tokio::time::timeout(lifetime, serving).await),
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
        let text = env.get("TOLD").map_or("1", String::as_str);
        let result = match method {
            "initialize" => Ok(json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "fake", "version": text},
            })),
            "server/discover" if self.is_modern => Ok(json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools = tools.iter().map(|name| {
                    let description = format!("tool {text}");
                    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
                });
                Ok(json!({"tools": tools.collect::<Vec<_>>()}))
            }
            "tools/call" if params["name"] == "refuse" => Err(json!({
                "code": params["arguments"]["code"],
                "message": format!("not with {text}"),
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
