//! Legacy clients of modern servers.

use serde_json::json;

use super::client::{Client, call, request};
use crate::gateway::tests::modern::{FakeServers, Versions};

#[tokio::test]
async fn a_client_with_a_session_can_use_a_stateless_server() {
    let servers = FakeServers::with(&[("new", Versions::Modern)]);
    let mut client = Client::new(&servers.gateway(), "new");
    let handshake = client.initialize("2025-11-25", json!({})).await;
    assert_eq!(handshake["protocolVersion"], "2025-11-25");
    assert_eq!(handshake["serverInfo"]["name"], "new");
    let mut echo = call(1, "echo", json!({"a": 1}));
    echo["vendor"] = json!([1]);
    let got = client.post(&echo).await.json();
    assert_eq!(got["result"]["arguments"], json!({"a": 1}));
    let vendors = servers.record("new").received("main vendor");
    assert_eq!(vendors, ["main vendor [1]"], "unknown fields are forwarded");
    let ping = client.post(&request(2, "ping", json!({}))).await.json();
    assert_eq!(ping["result"], json!({}));
    for tool in ["secret", "ask"] {
        let got = client.call(3, tool, json!({})).await.json();
        assert!(got.get("error").is_some(), "{tool}: {got}");
    }
}

#[tokio::test]
async fn a_modern_server_that_requires_client_input_is_refused() {
    let servers = FakeServers::with(&[("new", Versions::Modern)]);
    let client = Client::initialized(&servers.gateway(), "new", json!({"elicitation": {}})).await;
    let got = client.call(1, "ask", json!({})).await.json();
    assert_eq!(got["error"]["code"], -32603);
    let text = got["error"]["message"].as_str().expect("a text");
    assert!(text.contains("requires client input"), "{text}");
}

#[tokio::test]
async fn a_restarted_modern_server_serves_the_next_call() {
    let servers = FakeServers::with(&[("new", Versions::Modern)]);
    let client = Client::initialized(&servers.gateway(), "new", json!({"roots": {}})).await;
    for id in [1, 2] {
        let got = client.call(id, "echo", json!({"a": 1})).await.json();
        assert_eq!(got["result"]["arguments"], json!({"a": 1}));
        servers.end("new", false);
    }
    let got = client.call(3, "secret", json!({})).await.json();
    assert!(got.get("error").is_some(), "{got}");
}
