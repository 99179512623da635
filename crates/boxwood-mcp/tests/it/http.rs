//! Rules of the Streamable HTTP transport.

use boxwood_agent::{Agent, AgentSettings};
use boxwood_mcp::HttpServer;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

struct Answer {
    status: StatusCode,
    session: Option<String>,
    body: String,
}

impl Answer {
    /// The JSON of the response, or of the last event with data.
    fn json(&self) -> Value {
        let last = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(str::trim)
            .rfind(|data| !data.is_empty());
        serde_json::from_str(last.unwrap_or(&self.body)).expect("JSON")
    }
}

fn server() -> HttpServer {
    HttpServer::new(Agent::disabled(AgentSettings::default()), 1 << 20)
}

async fn send(
    server: &HttpServer,
    method: Method,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri("http://localhost/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Full::new(Bytes::from(body.to_string()));
    let answer = server.answer(request.body(body).expect("request")).await;
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.expect("body").to_bytes();
    Answer {
        status: parts.status,
        session: parts
            .headers
            .get("mcp-session-id")
            .map(|id| id.to_str().expect("text").to_owned()),
        body: String::from_utf8(bytes.to_vec()).expect("UTF-8"),
    }
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

async fn initialize(server: &HttpServer) -> String {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let answer = send(server, Method::POST, &[], &request("initialize", &params)).await;
    assert_eq!(answer.status, StatusCode::OK);
    let id = answer.session.clone().expect("a session");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let headers = [("mcp-session-id", id.as_str())];
    let accepted = send(server, Method::POST, &headers, &initialized).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    id
}

async fn list(server: &HttpServer, session: &str) -> Answer {
    let headers = [
        ("mcp-session-id", session),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    send(
        server,
        Method::POST,
        &headers,
        &request("tools/list", &json!({})),
    )
    .await
}

#[tokio::test]
async fn a_legacy_client_has_a_session_until_it_deletes_it() {
    let server = server();
    let session = initialize(&server).await;
    let listed = list(&server, &session).await;
    assert_eq!(listed.status, StatusCode::OK);
    assert_eq!(
        listed.json()["result"]["tools"].as_array().map(Vec::len),
        Some(8)
    );
    let headers = [("mcp-session-id", session.as_str())];
    let deleted = send(&server, Method::DELETE, &headers, &Value::Null).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    assert_eq!(list(&server, &session).await.status, StatusCode::NOT_FOUND);
    assert_eq!(list(&server, "made-up").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn sessions_are_bounded_and_the_newest_is_served() {
    let server = server();
    let first = initialize(&server).await;
    let mut last = String::new();
    for _ in 0..256 {
        last = initialize(&server).await;
    }
    assert_eq!(list(&server, &first).await.status, StatusCode::NOT_FOUND);
    assert_eq!(list(&server, &last).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_modern_client_needs_headers_and_no_session() {
    let server = server();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"name": "exec", "arguments": {"command": "true"}, "_meta": meta});
    let body = request("tools/call", &params);
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "exec"),
    ];
    let answer = send(&server, Method::POST, &headers, &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.json()["result"]["isError"], true);

    let lies = [headers[0], headers[1], ("mcp-name", "read")];
    let refused = send(&server, Method::POST, &lies, &body).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.json()["error"]["code"], -32020);

    let waiting = send(&server, Method::GET, &headers[..1], &Value::Null).await;
    assert_eq!(waiting.status, StatusCode::METHOD_NOT_ALLOWED);
}
