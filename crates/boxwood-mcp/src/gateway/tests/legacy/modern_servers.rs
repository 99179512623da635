//! Legacy clients of modern servers.

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Client, Stream, call, request};
use crate::gateway::GatewaySettings;
use crate::gateway::tests::modern::{FakeServers, Knows};

fn answer(id: &Value, action: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"action": action}})
}

async fn stream(client: &Client, body: &Value) -> Stream {
    let request = client.request(Method::POST, body.to_string());
    Stream::of(client.send(request).await)
}

#[tokio::test]
async fn a_client_with_a_session_can_use_a_stateless_server() {
    let servers = FakeServers::with(&[("new", Knows::Stateless)]);
    let mut client = Client::new(&servers.gateway(), "new");
    let handshake = client.initialize("2025-11-25", json!({})).await;
    assert_eq!(handshake["protocolVersion"], "2025-11-25");
    assert_eq!(handshake["serverInfo"]["name"], "new");
    let mut echo = call(1, "echo", json!({"a": 1}));
    echo["vendor"] = json!([1]);
    let got = client.post(&echo).await.json();
    assert_eq!(got["result"]["said"], json!({"a": 1}));
    let vendors = servers.record("new").heard("main vendor");
    assert_eq!(vendors, ["main vendor [1]"], "unknown fields are forwarded");
    let ping = client.post(&request(2, "ping", json!({}))).await.json();
    assert_eq!(ping["result"], json!({}));
    for tool in ["secret", "ask"] {
        let got = client.call(3, tool, json!({})).await.json();
        assert!(got.get("error").is_some(), "{tool}: {got}");
    }
}

#[tokio::test]
async fn input_of_a_modern_server_is_requested_from_the_legacy_client() {
    let servers = FakeServers::with(&[("new", Knows::Stateless)]);
    let client = Client::begun(&servers.gateway(), "new", json!({"elicitation": {}})).await;
    let mut ask = call(1, "ask", json!({}));
    ask["vendor"] = json!([1]);
    let mut stream = stream(&client, &ask).await;
    let (_, question) = stream.next().await.expect("a request");
    assert_eq!(question["method"], "elicitation/create");
    client.post(&answer(&question["id"], "decline")).await;
    let (_, done) = stream.next().await.expect("the response");
    assert_eq!(
        done["result"]["answers"],
        json!({"q": {"action": "decline"}})
    );
    assert_eq!(done["result"]["state"], "sealed");
    let vendors = servers.record("new").heard("main vendor");
    assert_eq!(vendors.len(), 2, "in every round: {vendors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_responds_gets_a_cancellation() {
    let servers = FakeServers::with(&[("new", Knows::Stateless)]);
    let gateway = servers.gateway_with(GatewaySettings {
        longest_call: std::time::Duration::from_mins(1),
        ..GatewaySettings::default()
    });
    let client = Client::begun(&gateway, "new", json!({"elicitation": {}})).await;
    let began = Instant::now();
    let mut stream = stream(&client, &call(1, "ask", json!({}))).await;
    let (_, question) = stream.next().await.expect("a request");
    let (_, cancelled) = stream.next().await.expect("a cancellation");
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    let (_, failed) = stream.next().await.expect("the response");
    assert!(failed.get("error").is_some(), "{failed}");
    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn a_restarted_server_is_called_on() {
    let servers = FakeServers::with(&[("new", Knows::Stateless)]);
    let client = Client::begun(&servers.gateway(), "new", json!({"roots": {}})).await;
    for id in [1, 2] {
        let got = client.call(id, "echo", json!({"a": 1})).await.json();
        assert_eq!(got["result"]["said"], json!({"a": 1}));
        servers.end("new", false);
    }
    let got = client.call(3, "secret", json!({})).await.json();
    assert!(got.get("error").is_some(), "{got}");
}
