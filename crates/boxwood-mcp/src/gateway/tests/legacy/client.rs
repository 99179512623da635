//! A legacy client that exposes all messages it receives.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::agent_server::Answer;
use crate::gateway::tests::fake_servers::named;
use crate::gateway::{Gateway, Target};

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) struct Client {
    pub(super) gateway: Gateway,
    pub(super) target: Target,
    pub(super) principal: Option<String>,
    pub(super) session: Option<String>,
    pub(super) version: Option<String>,
    pub(super) accept: &'static str,
}

/// A response that was read to its end.
pub(super) struct TestResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl TestResponse {
    pub(super) fn is_events(&self) -> bool {
        self.headers
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream")
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// All messages of a JSON or SSE response.
    pub(super) fn messages(&self) -> Vec<Value> {
        if !self.is_events() {
            return vec![self.json()];
        }
        events(&self.text)
            .into_iter()
            .map(|(_, message)| message)
            .collect()
    }
}

/// Ids and messages of a stream. Events without data say nothing.
pub(super) fn events(text: &str) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for event in text.split("\n\n") {
        let field = |name: &str| {
            let line = event.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).unwrap_or_default()
        };
        if let Ok(message) = serde_json::from_str(field("data:")) {
            found.push((field("id:").to_owned(), message));
        }
    }
    found
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
            principal: Some("me".to_owned()),
            session: None,
            version: None,
            accept: "application/json, text/event-stream",
        }
    }

    /// A client with an initialized session.
    pub(super) async fn initialized(gateway: &Gateway, server: &str, capabilities: Value) -> Self {
        let mut client = Self::new(gateway, server);
        client.initialize("2025-11-25", capabilities).await;
        client
    }

    pub(super) async fn initialize(&mut self, version: &str, capabilities: Value) -> Value {
        let got = self.try_initialize(version, capabilities).await;
        assert_eq!(got.status, StatusCode::OK, "{}", got.text);
        let session = got.headers.get("mcp-session-id").expect("a session");
        self.session = Some(session.to_str().expect("text").to_owned());
        let result = got.json()["result"].clone();
        self.version = result["protocolVersion"].as_str().map(str::to_owned);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&initialized).await.status, StatusCode::ACCEPTED);
        result
    }

    pub(super) async fn try_initialize(&self, version: &str, capabilities: Value) -> TestResponse {
        let client = json!({"name": "test", "version": "0"});
        let params =
            json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": client});
        self.post(&request(0, "initialize", params)).await
    }

    pub(super) fn request(&self, method: Method, body: impl Into<Bytes>) -> Request<Bytes> {
        let mut request = Request::builder().method(method).uri("/mcp/x");
        request = request.header("accept", self.accept);
        request = request.header("content-type", "application/json");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if let Some(version) = &self.version {
            request = request.header("mcp-protocol-version", version);
        }
        request.body(body.into()).expect("a request")
    }

    pub(super) async fn send(&self, request: Request<Bytes>) -> Answer {
        let (target, principal) = (self.target.clone(), self.principal.clone());
        let answer = self.gateway.answer(target, principal, request);
        timeout(RESPONSE_TIMEOUT, answer)
            .await
            .expect("no answer in time")
    }

    pub(super) async fn post(&self, body: &Value) -> TestResponse {
        self.post_text(&body.to_string()).await
    }

    pub(super) async fn post_text(&self, body: &str) -> TestResponse {
        let request = self.request(Method::POST, body.to_owned());
        read(self.send(request).await).await
    }

    pub(super) async fn call(&self, id: u64, tool: &str, arguments: Value) -> TestResponse {
        self.post(&call(id, tool, arguments)).await
    }

    pub(super) async fn get(&self, last: Option<&str>) -> Answer {
        let mut request = self.request(Method::GET, "");
        if let Some(last) = last {
            let last = last.parse().expect("a header");
            request.headers_mut().insert("last-event-id", last);
        }
        self.send(request).await
    }

    pub(super) async fn delete(&self) -> TestResponse {
        let request = self.request(Method::DELETE, "");
        read(self.send(request).await).await
    }
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with `json!`")]
pub(super) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with `json!`")]
pub(super) fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let meta = json!({"progressToken": id});
    request(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments, "_meta": meta}),
    )
}

pub(super) async fn read(answer: Answer) -> TestResponse {
    let got = timeout(RESPONSE_TIMEOUT, read_slowly(answer)).await;
    got.expect("an endless body")
}

/// Without a timeout, because a test may have paused the clock.
pub(super) async fn read_slowly(answer: Answer) -> TestResponse {
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.expect("body").to_bytes();
    TestResponse {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8(bytes.to_vec()).expect("UTF-8"),
    }
}

/// The one stream of the first revision.
pub(super) struct LegacySseStream(Stream);

impl LegacySseStream {
    pub(super) fn of(answer: Answer) -> Self {
        Self(Stream::of(answer))
    }

    /// Path for `POST` requests.
    pub(super) async fn endpoint(&mut self) -> String {
        self.0.more().await;
        let first = self.0.last.strip_prefix("event: endpoint\ndata: ");
        first.expect("an endpoint").trim().to_owned()
    }

    pub(super) async fn next(&mut self) -> Value {
        self.0.next().await.expect("a message").1
    }
}

/// A stream that is read piece by piece.
pub(super) struct Stream {
    answer: Answer,
    /// Incomplete event.
    text: String,
    /// The last complete event.
    last: String,
    ready: VecDeque<(String, Value)>,
}

impl Stream {
    pub(super) fn of(answer: Answer) -> Self {
        assert_eq!(answer.status(), StatusCode::OK);
        Self {
            answer,
            text: String::new(),
            last: String::new(),
            ready: VecDeque::new(),
        }
    }

    /// The next message and its event id. `None` at the end.
    pub(super) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Returns true if there was one.
    async fn more(&mut self) -> bool {
        let frame = timeout(RESPONSE_TIMEOUT, self.answer.body_mut().frame()).await;
        let Some(frame) = frame.expect("nothing came") else {
            return false;
        };
        let bytes = frame.expect("a frame").into_data().expect("data");
        self.text
            .push_str(std::str::from_utf8(&bytes).expect("UTF-8"));
        if self.text.ends_with("\n\n") {
            self.last = std::mem::take(&mut self.text);
            self.ready.extend(events(&self.last));
        }
        true
    }
}
