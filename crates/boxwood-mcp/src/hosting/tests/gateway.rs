//! Gateway clients with hosted servers.

use std::time::Duration;

use boxwood_api::McpStatus;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::fake_server::FakeServer;
use super::{Fixture, name};
use crate::agent_server::Answer;
use crate::gateway::{Gateway, GatewaySettings, Target};

struct Client {
    gateway: Gateway,
    server: &'static str,
    session: Option<String>,
}

impl Client {
    fn of(fixture: &Fixture, server: &'static str) -> Self {
        Self {
            gateway: Gateway::new(fixture.hosting.clone(), GatewaySettings::default()),
            server,
            session: None,
        }
    }

    /// With an initialized session.
    async fn begun(fixture: &Fixture, server: &'static str, capabilities: Value) -> Self {
        let mut client = Self::of(fixture, server);
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities});
        let answer = client.ask("initialize", params).await;
        let session = answer.headers().get("mcp-session-id").expect("a session");
        client.session = Some(session.to_str().expect("text").to_owned());
        client
    }

    async fn send(&self, method: Method, body: String) -> Answer {
        let mut request = Request::builder().method(method).uri("/mcp/x");
        request = request.header("content-type", "application/json");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        let request = request.body(Bytes::from(body)).expect("a request");
        let target = match self.server {
            "_all" => Target::All,
            one => Target::One(name(one)),
        };
        self.gateway.answer(target, None, request).await
    }

    async fn ask(&self, method: &str, params: Value) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = self.send(Method::POST, body.to_string()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        answer
    }

    /// The last message of the response.
    async fn call(&self, tool: &str) -> Value {
        let params = json!({"name": tool, "arguments": {}});
        let body = self.ask("tools/call", params).await.into_body();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let last = text.lines().rfind(|line| line.contains("\"jsonrpc\""));
        let last = last.map_or("", |line| line.trim_start_matches("data: "));
        serde_json::from_str(last).unwrap_or_else(|_| panic!("no message: {text}"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_survives_a_restart_of_its_server() {
    let fixture = Fixture::new();
    fixture.add_program("frail", FakeServer::with_lifetimes([Some(20), None]));
    fixture
        .add(json!({"name": "frail", "command": "frail"}))
        .await;
    let client = Client::begun(&fixture, "frail", json!({})).await;
    assert_eq!(
        client.call("greet").await["result"]["content"][0]["text"],
        "hello"
    );
    tokio::time::sleep(Duration::from_secs(21)).await;
    let retried = client.call("greet").await;
    assert_eq!(
        retried["result"]["content"][0]["text"], "hello",
        "{retried}"
    );
}

#[tokio::test(start_paused = true)]
async fn early_server_requests_arrive_and_the_process_ends_with_the_session() {
    let fixture = Fixture::new();
    let fake_server = FakeServer {
        asks_for_roots: true,
        ..FakeServer::default()
    };
    fixture.add_program("curious", fake_server);
    fixture
        .add(json!({"name": "curious", "command": "curious"}))
        .await;
    let client = Client::begun(&fixture, "curious", json!({"roots": {}})).await;
    assert_eq!(fixture.runtime.running("mcp-curious").len(), 2);
    let mut stream = client.send(Method::GET, String::new()).await.into_body();
    let frame = stream.frame().await.expect("a frame").expect("no error");
    let text = frame.into_data().expect("data");
    let text = String::from_utf8(text.to_vec()).expect("UTF-8");
    assert!(text.contains("roots/list"), "{text}");
    let answer = json!({"jsonrpc": "2.0", "id": "q", "result": {"roots": []}});
    let accepted = client.send(Method::POST, answer.to_string()).await;
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);

    let deleted = client.send(Method::DELETE, String::new()).await;
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fixture.runtime.running("mcp-curious"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn a_hung_client_process_is_replaced_for_the_next_call() {
    let fixture = Fixture::new();
    let fake_server = FakeServer {
        stops_responding_after: Some(Duration::from_secs(10)),
        // The first child process.
        unresponsive_run: Some(1),
        ..FakeServer::default()
    };
    fixture.add_program("hangs", fake_server);
    fixture
        .add(json!({"name": "hangs", "command": "hangs"}))
        .await;
    let client = Client::begun(&fixture, "hangs", json!({"roots": {}})).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    let late = client.call("greet").await;
    assert_eq!(late["error"]["data"]["phase"], "tool_call", "{late}");
    let next = client.call("greet").await;
    assert_eq!(next["result"]["content"][0]["text"], "hello", "{next}");
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_the_client_process() {
    let fixture = Fixture::new();
    fixture.add_connected("time").await;
    let listens = Client::begun(&fixture, "time", json!({"roots": {}})).await;
    let stream = listens.send(Method::GET, String::new()).await;
    let kept = fixture.runtime.running("mcp-time");
    let _leaves = Client::begun(&fixture, "time", json!({"roots": {}})).await;
    assert_eq!(fixture.runtime.running("mcp-time").len(), 3);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(
        fixture.runtime.running("mcp-time"),
        kept,
        "the other one went"
    );
    drop(stream);
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(
        fixture.runtime.running("mcp-time"),
        kept,
        "it may come back"
    );
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(fixture.runtime.running("mcp-time"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_does_not_keep_the_server_from_idling() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({"name": "time", "command": "well", "idle_stop_sec": 600}))
        .await;
    let client = Client::begun(&fixture, "time", json!({"roots": {}})).await;
    let _stream = client.send(Method::GET, String::new()).await;
    fixture.until_status(&time, McpStatus::Stopped).await;
    assert_eq!(
        client.call("greet").await["result"]["content"][0]["text"],
        "hello"
    );
}

#[tokio::test(start_paused = true)]
async fn without_free_slot_the_shared_process_serves_the_client() {
    let fixture = Fixture::with(|settings| settings.max_children = 1);
    fixture.add_connected("time").await;
    let first = Client::begun(&fixture, "time", json!({"roots": {}})).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fixture.runtime.running("mcp-time"), ["main"]);
    let second = Client::begun(&fixture, "time", json!({"roots": {}})).await;
    assert_eq!(fixture.runtime.running("mcp-time").len(), 2);
    for client in [&first, &second] {
        let answer = client.call("greet").await;
        assert_eq!(answer["result"]["content"][0]["text"], "hello", "{answer}");
    }
    let level = first.ask("logging/setLevel", json!({"level": "debug"}));
    let body = level.await.into_body().collect().await.expect("a body");
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    assert!(
        text.contains("clients have a process of this server"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_reported_with_its_phase() {
    let fixture = Fixture::new();
    let fake_server = FakeServer {
        handshake_delay: Duration::from_hours(24),
        ..FakeServer::default()
    };
    fixture.add_program("mute", fake_server);
    let spec = json!({"name": "mute", "command": "mute", "box": {"startup_timeout_sec": 5}});
    fixture.add(spec).await;
    let client = Client::of(&fixture, "mute");
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let body = client.ask("initialize", params).await.into_body();
    let text = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(text.to_vec()).expect("UTF-8");
    assert!(text.contains("\"phase\":\"mcp_init\""), "{text}");
}

#[tokio::test(start_paused = true)]
async fn listing_all_servers_starts_none_and_keeps_none_running() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({"name": "time", "command": "well", "idle_stop_sec": 60}))
        .await;
    fixture.until_status(&time, McpStatus::Connected).await;
    let client = Client::begun(&fixture, "_all", json!({})).await;
    let listed = async || {
        let body = client.ask("tools/list", json!({})).await.into_body();
        let bytes = body.collect().await.expect("a body").to_bytes();
        String::from_utf8_lossy(&bytes).contains("\"time__greet\"")
    };
    for _ in 0..5 {
        assert!(listed().await);
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Stopped);
    assert!(listed().await, "as it was listed before");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Stopped);
    assert_eq!(fixture.runtime.names(), [""; 0], "it is still idle");
}
