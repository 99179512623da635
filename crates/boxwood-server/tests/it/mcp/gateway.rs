//! MCP clients of hosted servers: routes, authentication, limits.

use futures_util::StreamExt as _;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::api::{Api, answer, refused};
use crate::daemon::load::number;
use crate::mcp::servers::{added, eventually, tiny};

const SESSION: &str = "mcp-session-id";

fn post(api: &Api, path: &str, message: &Value) -> RequestBuilder {
    api.request(Method::POST, path)
        .header("accept", "application/json, text/event-stream")
        .json(message)
}

/// The message of a JSON response, or the last one of an event stream.
async fn message(response: Response) -> Value {
    assert_eq!(response.status(), 200);
    let text = response.text().await.expect("a body");
    let mut data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let last = data.next_back().unwrap_or(&text).trim();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("`{text}`: {error}"))
}

fn hello() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }})
}

async fn session(api: &Api, path: &str) -> String {
    let greeted = post(api, path, &hello()).send().await.expect("an answer");
    let id = greeted.headers().get(SESSION).expect("a session").clone();
    let id = id.to_str().expect("text").to_owned();
    let greeting = message(greeted).await;
    assert_eq!(
        greeting["result"]["protocolVersion"], "2025-06-18",
        "{greeting}"
    );
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ready = post(api, path, &ready).header(SESSION, &id).send().await;
    assert_eq!(ready.expect("an answer").status(), 202);
    id
}

async fn called(api: &Api, path: &str, tool: &str) -> Value {
    let id = session(api, path).await;
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call",
        "params": {"name": tool, "arguments": {"word": "hello"}}});
    let answered = post(api, path, &call).header(SESSION, &id).send().await;
    let result = message(answered.expect("an answer")).await;
    assert_eq!(result["id"], "c", "{result}");
    result
}

#[tokio::test]
async fn a_client_calls_a_tool_at_the_servers_own_address_and_at_that_of_all() {
    let api = Api::start().await;
    added(&api, &tiny("tiny")).await;
    let result = called(&api, "/mcp/tiny", "echo").await;
    assert_eq!(
        result["result"]["content"][0]["text"],
        "{\"word\": \"hello\"}"
    );
    assert_eq!(result["result"]["x-kept"], 1);
    let result = called(&api, "/mcp/_all", "tiny__echo").await;
    assert_eq!(
        result["result"]["content"][0]["text"],
        "{\"word\": \"hello\"}"
    );
}

#[tokio::test]
async fn every_gateway_route_checks_token_origin_and_host() {
    let api = Api::start().await;
    added(&api, &tiny("tiny")).await;
    for path in ["/mcp/tiny", "/mcp/_all", "/mcp/tiny/messages?sessionId=x"] {
        let stranger = post(&api, path, &hello()).header("authorization", "Bearer nope");
        assert_eq!(
            stranger.send().await.expect("an answer").status(),
            401,
            "{path}"
        );
        let page = post(&api, path, &hello()).header("origin", "http://evil.example");
        assert_eq!(
            page.send().await.expect("an answer").status(),
            403,
            "{path}"
        );
        let rebound = post(&api, path, &hello()).header("host", "evil.example");
        assert_eq!(
            rebound.send().await.expect("an answer").status(),
            403,
            "{path}"
        );
    }
    let page = api.request(Method::GET, "/mcp/tiny/sse");
    let page = page.header("origin", "http://evil.example").send().await;
    assert_eq!(page.expect("an answer").status(), 403);
}

#[tokio::test]
async fn an_mcp_session_belongs_to_the_client_that_created_it() {
    let api = Api::start().await;
    added(&api, &tiny("tiny")).await;
    let id = session(&api, "/mcp/tiny").await;
    let ping = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
    let own = post(&api, "/mcp/tiny", &ping)
        .header(SESSION, &id)
        .send()
        .await;
    assert_eq!(own.expect("an answer").status(), 200);
    let token = format!("Bearer {}", api.daemon.token("other"));
    let other = post(&api, "/mcp/tiny", &ping).header(SESSION, &id);
    let other = other.header("authorization", token).send().await;
    assert_eq!(other.expect("an answer").status(), 404);
}

#[tokio::test]
async fn bodies_are_bounded_and_server_names_are_checked() {
    let api = Api::start_with(|config| config.http.max_body_bytes = 20_000).await;
    added(&api, &tiny("tiny")).await;
    let long =
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y".repeat(30_000)}});
    for path in ["/mcp/tiny", "/mcp/_all"] {
        let answered = post(&api, path, &long).send().await.expect("an answer");
        assert_eq!(answered.status(), 413, "{path}");
    }
    let unknown = post(&api, "/mcp/unknown", &hello()).send().await;
    assert_eq!(unknown.expect("an answer").status(), 404);
    refused(
        &api.post("/mcp/_other", &hello()).await,
        400,
        "validation_error",
    );
}

#[tokio::test]
async fn an_old_client_has_one_stream_for_everything() {
    let api = Api::start().await;
    added(&api, &tiny("tiny")).await;
    let stream = api.request(Method::GET, "/mcp/tiny/sse");
    let stream = stream.header("accept", "text/event-stream").send().await;
    let stream = stream.expect("an answer");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut chunks = stream.bytes_stream();
    let mut received = String::new();
    let endpoint = loop {
        let chunk = chunks.next().await.expect("more").expect("bytes");
        received.push_str(&String::from_utf8_lossy(&chunk));
        if received.contains("\n\n") {
            let data = received.lines().find_map(|line| line.strip_prefix("data:"));
            break data.expect("an endpoint").trim().to_owned();
        }
    };
    assert!(endpoint.starts_with("/mcp/tiny/messages?"), "{endpoint}");
    let sent = post(&api, &endpoint, &hello())
        .send()
        .await
        .expect("an answer");
    assert_eq!(sent.status(), 202);
    while !received.contains("serverInfo") {
        let chunk = chunks.next().await.expect("more").expect("bytes");
        received.push_str(&String::from_utf8_lossy(&chunk));
    }
}

#[tokio::test]
async fn an_event_stream_does_not_delay_the_shutdown() {
    let api = Api::start_with(|config| config.http.drain_sec = 60).await;
    added(&api, &tiny("tiny")).await;
    let id = session(&api, "/mcp/tiny").await;
    let get = api.request(Method::GET, "/mcp/tiny").header(SESSION, &id);
    let get = get.header("accept", "text/event-stream").send().await;
    let mut chunks = get.expect("an answer").bytes_stream();
    let begin = std::time::Instant::now();
    api.daemon.ask_to_stop();
    while chunks.next().await.is_some() {}
    assert!(begin.elapsed() < std::time::Duration::from_secs(30));
    let Api { daemon, .. } = api;
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_whose_box_was_deleted_is_started_again() {
    let api = Api::start().await;
    added(&api, &tiny("tiny")).await;
    let deleting = api.request(Method::DELETE, "/v1/sessions/mcp-tiny");
    let (status, _) = answer(deleting.header("boxwood-operator", "1")).await;
    assert_eq!(status, 200);
    eventually("it is there again", || async {
        let (_, info) = api.get("/v1/mcp/servers/tiny").await;
        let (session, _) = api.get("/v1/sessions/mcp-tiny").await;
        session == 200 && info["runtime"]["status"] == "connected"
    })
    .await;
    let result = called(&api, "/mcp/tiny", "echo").await;
    assert_eq!(result["result"]["isError"], false, "{result}");
}

/// Requests of one token wait for a server that does not read. Requests of other tokens are served.
#[tokio::test]
async fn one_token_leaves_room_for_the_requests_of_others() {
    let api = Api::start_with(|config| config.load.bytes_in_flight_mb = Some(8)).await;
    added(&api, &tiny("asleep")).await;
    added(&api, &tiny("awake")).await;
    let (ann, bob) = (api.daemon.token("ann"), api.daemon.token("bob"));
    let send = async |token: &str, server: &str, tool: &str, bytes: usize| {
        let path = format!("/mcp/{server}");
        let greeted = post(&api, &path, &hello()).bearer_auth(token).send().await;
        let greeted = greeted.expect("an answer");
        let id = greeted.headers().get(SESSION).expect("a session").clone();
        let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call",
            "params": {"name": tool, "arguments": {"pad": "x".repeat(bytes)}}});
        let call = post(&api, &path, &call).header(SESSION, &id);
        call.bearer_auth(token)
    };
    let nap = tokio::spawn(send(&ann, "asleep", "nap", 0).await.send());
    let large = send(&ann, "asleep", "echo", 1_600_000).await;
    let waiting = tokio::spawn(large.send());
    eventually("the large request waits", || async {
        number(&api, "boxwood_bytes_in_flight").await >= 1_600_000
    })
    .await;
    let more = answer(send(&ann, "awake", "echo", 1_000_000).await).await;
    assert_eq!(more.1["error"]["code"], "capacity", "{}", more.0);
    let small = send(&ann, "awake", "echo", 1_000).await.send().await;
    assert!(message(small.expect("an answer")).await["result"].is_object());
    let others = send(&bob, "awake", "echo", 1_600_000).await.send().await;
    assert!(message(others.expect("an answer")).await["result"].is_object());
    nap.abort();
    waiting.abort();
}
