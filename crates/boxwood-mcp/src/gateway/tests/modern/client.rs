//! A modern client that exposes all messages it receives.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::agent_server::Answer;
use crate::gateway::tests::fake_servers::named;
use crate::gateway::{Gateway, Target};
use crate::protocol_versions::{CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, VERSION};

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Client {
    gateway: Gateway,
    target: Target,
    pub(super) principal: Option<String>,
    pub(super) capabilities: Value,
    /// Additional keys of `_meta`.
    pub(super) meta: Value,
    pub(super) headers: Vec<(&'static str, String)>,
}

pub(super) struct TestResponse {
    pub(super) status: u16,
    /// All messages; the response is the last one.
    pub(super) messages: Vec<Value>,
}

impl TestResponse {
    pub(super) fn last(&self) -> &Value {
        self.messages.last().expect("an answer")
    }

    pub(super) fn result(&self) -> &Value {
        let last = self.last();
        assert_eq!(self.status, 200, "{last}");
        last.get("result")
            .unwrap_or_else(|| panic!("no result: {last}"))
    }

    pub(super) fn error(&self) -> (u16, i64) {
        let code = self.last()["error"]["code"].as_i64();
        (
            self.status,
            code.unwrap_or_else(|| panic!("no error: {}", self.last())),
        )
    }
}

impl Client {
    pub(super) fn new(gateway: &Gateway, server: &str) -> Self {
        let target = match server {
            "_all" => Target::All,
            name => Target::One(named(name)),
        };
        Self {
            gateway: gateway.clone(),
            target,
            principal: Some("ann".to_owned()),
            capabilities: json!({}),
            meta: json!({}),
            headers: Vec::new(),
        }
    }

    pub(super) fn with_capabilities(gateway: &Gateway, server: &str, capabilities: Value) -> Self {
        Self {
            capabilities,
            ..Self::new(gateway, server)
        }
    }

    pub(super) async fn send(&self, method: &str, mut params: Value) -> Answer {
        let name = params
            .get("name")
            .or(params.get("uri"))
            .and_then(Value::as_str);
        let mut request = Request::builder().method("POST").uri("/mcp/x");
        request = request
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let mut meta = json!({
            VERSION: MODERN,
            CLIENT_CAPABILITIES: self.capabilities,
            CLIENT_INFO: {"name": "test", "version": "0"},
        });
        if let (Some(meta), Some(more)) = (meta.as_object_mut(), self.meta.as_object()) {
            meta.extend(more.clone());
        }
        params["_meta"] = meta;
        let body = json!({"jsonrpc": "2.0", "id": "mine", "method": method, "params": params, "vendor": [1]});
        let request = request.body(Bytes::from(body.to_string()));
        let (target, principal) = (self.target.clone(), self.principal.clone());
        let request = request.expect("a request");
        let answer = self.gateway.answer(target, principal, request);
        timeout(RESPONSE_TIMEOUT, answer)
            .await
            .expect("no answer in time")
    }

    pub(super) async fn ask(&self, method: &str, params: Value) -> TestResponse {
        let answer = self.send(method, params).await;
        let status = answer.status().as_u16();
        let body = timeout(RESPONSE_TIMEOUT, answer.into_body().collect())
            .await
            .expect("an endless body");
        let text = body.expect("a body").to_bytes();
        let text = std::str::from_utf8(&text).expect("UTF-8");
        let messages = match serde_json::from_str(text) {
            Ok(message) => vec![message],
            Err(_) => events(text),
        };
        for message in &messages {
            if message.get("method").is_none() {
                assert_eq!(message["id"], "mine", "{message}");
            }
        }
        TestResponse { status, messages }
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value) -> TestResponse {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }
}

fn events(text: &str) -> Vec<Value> {
    let data = text
        .split("\n\n")
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")));
    data.map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

/// A stream that stays open.
pub(super) struct Stream {
    answer: Answer,
    text: String,
}

impl Stream {
    pub(super) fn of(answer: Answer) -> Self {
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert_eq!(answer.headers()["x-accel-buffering"], "no");
        let text = String::new();
        Self { answer, text }
    }

    /// `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let found = events(event);
                self.text = rest.to_owned();
                match found.into_iter().next() {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            let frame = timeout(RESPONSE_TIMEOUT, self.answer.body_mut().frame()).await;
            let bytes = frame
                .expect("nothing came")?
                .expect("a frame")
                .into_data()
                .expect("data");
            self.text
                .push_str(std::str::from_utf8(&bytes).expect("UTF-8"));
        }
    }
}
