//! Sessions of legacy clients: begin, end, limits, protocol versions.

use std::time::Duration;

use boxwood_api::McpPhase;
use http::{Method, StatusCode};
use serde_json::json;

use super::client::{Stream, call, request};
use super::*;
use crate::gateway::GatewaySettings;

#[tokio::test]
async fn the_initialize_result_of_a_shared_server_has_the_requested_version_and_all_fields() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::new(&gateway, "one");
        let result = client.initialize(version, json!({})).await;
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["notInTheSchema"], json!({"kept": [1, 2]}));
        assert_eq!(result["instructions"], "be kind");
    }
    let mut client = Client::new(&gateway, "one");
    let result = client.initialize("1999-01-01", json!({})).await;
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(
        registry.record("one").received("initialize").len(),
        1,
        "one process"
    );
}

#[tokio::test]
async fn a_session_is_required_and_ends_with_delete() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let unknown = Client::new(&gateway, "one");
    let list = request(1, "tools/list", json!({}));
    assert_eq!(unknown.post(&list).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(unknown.get(None).await.status(), StatusCode::BAD_REQUEST);

    let client = Client::initialized(&gateway, "one", json!({})).await;
    let got = client.post(&list).await;
    assert_eq!(got.status, StatusCode::OK);
    assert!(!got.is_events(), "an answer that comes alone is JSON");
    assert_eq!(client.delete().await.status, StatusCode::NO_CONTENT);
    for response in [client.post(&list).await, client.delete().await] {
        assert_eq!(response.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(client.get(None).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_session_belongs_to_its_principal_and_its_server() {
    let registry = LegacyServers::with(&["one", "two"]);
    let gateway = registry.gateway();
    let client = Client::initialized(&gateway, "one", json!({})).await;
    let mut thief = client.clone();
    thief.principal = Some("you".to_owned());
    let mut anonymous = client.clone();
    anonymous.principal = None;
    let mut elsewhere = client.clone();
    elsewhere.target = Client::new(&gateway, "two").target;
    for stranger in [&thief, &anonymous, &elsewhere] {
        let got = stranger.call(1, "echo", json!({})).await;
        assert_eq!(got.status, StatusCode::NOT_FOUND);
        assert_eq!(stranger.get(None).await.status(), StatusCode::NOT_FOUND);
        assert_eq!(stranger.delete().await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(
        client.call(1, "echo", json!({})).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn headers_that_cannot_be_served_are_refused_with_their_status() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let client = Client::initialized(&gateway, "one", json!({})).await;
    let list = request(1, "tools/list", json!({}));

    let mut odd = client.clone();
    odd.version = Some("2025-01-01".to_owned());
    assert_eq!(odd.post(&list).await.status, StatusCode::BAD_REQUEST);
    odd.version = None;
    assert_eq!(odd.post(&list).await.status, StatusCode::OK);
    odd.accept = "text/html";
    assert_eq!(odd.post(&list).await.status, StatusCode::NOT_ACCEPTABLE);
    odd.accept = "application/json";
    assert_eq!(odd.get(None).await.status(), StatusCode::NOT_ACCEPTABLE);

    let mut plain = client.request(Method::POST, list.to_string());
    plain.headers_mut().remove("content-type");
    let status = client.send(plain).await.status();
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);

    let got = client.post_text("{\"jsonrpc\":").await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    assert_eq!(got.json()["error"]["code"], -32700);
    let status = client.send(client.request(Method::PUT, "")).await.status();
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let got = client.post(&request(3, "initialize", json!({}))).await;
    assert_eq!(got.json()["error"]["code"], -32600, "it has begun already");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway_with(GatewaySettings {
        max_body: 1000,
        ..GatewaySettings::default()
    });
    let client = Client::initialized(&gateway, "one", json!({})).await;
    let got = client.call(1, "echo", json!({"x": "y".repeat(1000)})).await;
    assert_eq!(got.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn initialize_parameters_are_bounded() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let described = |bytes: usize| json!({"experimental": {"x": "y".repeat(bytes)}, "roots": {}});
    for server in ["one", "_all"] {
        let client = Client::new(&gateway, server);
        let got = client
            .try_initialize("2025-11-25", described(64 * 1024))
            .await;
        let error = &got.json()["error"];
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].to_string().contains("65536 bytes"));
        assert!(got.headers.get("mcp-session-id").is_none());
        assert_eq!(gateway.inner.sessions.count(), 0);
        let initialized = Client::initialized(&gateway, server, described(60 * 1024)).await;
        initialized.delete().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_before_initialize_does_not_end_the_session() {
    let registry = LegacyServers::with(&["one"]);
    let slow = Duration::from_secs(8);
    *registry
        .record("one")
        .initialize_delay
        .lock()
        .expect("lock") = slow;
    let mut client = Client::new(&registry.gateway(), "one");
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let begin = client.request(Method::POST, request(0, "initialize", params).to_string());
    let answer = client.send(begin).await;
    let session = answer.headers()["mcp-session-id"].to_str().expect("text");
    client.session = Some(session.to_owned());
    let mut stream = Stream::of(answer);
    let early = client.post(&request(1, "tools/list", json!({}))).await;
    assert_eq!(early.json()["error"]["code"], -32600);
    let ping = client.post(&request(2, "ping", json!({}))).await;
    assert_eq!(ping.json()["result"], json!({}), "the session exists");
    let (_, response) = stream.next().await.expect("an answer");
    assert_eq!(response["result"]["protocolVersion"], "2025-11-25");
    let got = client.call(3, "echo", json!({})).await;
    assert_eq!(got.json()["result"]["unknown"], true);
}

#[tokio::test]
async fn batches_are_refused() {
    let registry = LegacyServers::with(&["one"]);
    let mut client = Client::new(&registry.gateway(), "one");
    client.initialize("2025-03-26", json!({})).await;
    let got = client.post(&json!([call(2, "echo", json!({}))])).await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    let text = got.json()["error"]["message"].to_string();
    assert!(text.contains("one message at a time"), "{text}");
}

#[tokio::test]
async fn a_server_that_is_down_is_an_error_with_its_phase_and_a_hint() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let initialized = Client::initialized(&gateway, "one", json!({})).await;
    initialized.call(1, "die", json!({})).await;
    registry
        .fake_server("one")
        .is_gone
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let client = Client::new(&gateway, "one");
    let refused = client.try_initialize("2025-11-25", json!({})).await;
    assert!(refused.headers.get("mcp-session-id").is_none());
    for got in [refused, initialized.call(7, "echo", json!({})).await] {
        let error = &got.json()["error"];
        assert_eq!(error["message"], "no response");
        assert_eq!(error["data"]["phase"], McpPhase::McpInit.as_str());
        assert_eq!(error["data"]["hint"], "look at its log");
    }
    let unknown = Client::new(&gateway, "three");
    let got = unknown.try_initialize("2025-11-25", json!({})).await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    assert_eq!(got.json()["id"], 0);
}

#[tokio::test]
async fn at_the_session_limit_the_least_active_idle_session_ends() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let initialized = async || {
        let mut client = Client::new(&gateway, "one");
        client.principal = None;
        client.initialize("2025-11-25", json!({})).await;
        client
    };
    let (first, second) = (initialized().await, initialized().await);
    let _news = first.get(None).await;
    let mut last = None;
    for _ in 0..1000 {
        last = Some(initialized().await);
    }
    assert_eq!(gateway.inner.sessions.count(), 1000);
    let got = second.call(1, "echo", json!({})).await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    for client in [Some(first), last].into_iter().flatten() {
        let got = client.call(1, "echo", json!({})).await;
        assert_eq!(got.status, StatusCode::OK, "it is read, or new");
    }
    assert_eq!(registry.record("one").received("initialize").len(), 1);
}

#[tokio::test]
async fn busy_sessions_are_not_evicted() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway_with(GatewaySettings {
        max_sessions: 1,
        ..GatewaySettings::default()
    });
    let client = Client::initialized(&gateway, "one", json!({})).await;
    let busy = tokio::spawn(async move { client.call(1, "hang", json!({})).await });
    registry.record("one").wait("tools/call \"hang\"", 1).await;
    let other = Client::new(&gateway, "one");
    let got = other.try_initialize("2025-11-25", json!({})).await;
    assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(got.headers.contains_key("retry-after"));
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_and_its_process_with_it() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let client = Client::initialized(&gateway, "one", json!({"roots": {}})).await;
    assert_eq!(registry.children("one"), 1);
    tokio::time::sleep(Duration::from_mins(29)).await;
    assert_eq!(
        client.call(1, "echo", json!({})).await.status,
        StatusCode::OK
    );
    tokio::time::sleep(Duration::from_mins(32)).await;
    assert_eq!(gateway.inner.sessions.count(), 0, "without a request");
    assert_eq!(registry.children("one"), 0);
    let got = client.call(2, "echo", json!({})).await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
}
