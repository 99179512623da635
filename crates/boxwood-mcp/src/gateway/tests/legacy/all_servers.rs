//! Legacy clients of all servers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, Stream, request};
use crate::gateway::tests::modern::{FakeServers, Versions};

fn answer(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept"}})
}

/// A client that gets server requests on its standalone stream.
async fn interactive(servers: &std::sync::Arc<FakeServers>) -> (Client, Stream) {
    let mut client =
        Client::initialized(&servers.gateway(), "_all", json!({"elicitation": {}})).await;
    let stream = Stream::of(client.get(None).await);
    client.accept = "application/json";
    (client, stream)
}

/// The next message, without the list changes of servers that start.
async fn next(stream: &mut Stream) -> Value {
    loop {
        let (_, message) = stream.next().await.expect("a message");
        let method = message["method"].as_str().unwrap_or_default();
        if !method.ends_with("list_changed") {
            return message;
        }
    }
}

fn spawn_call(client: &Client, id: u64, tool: &str) -> tokio::task::JoinHandle<Value> {
    let (client, tool) = (client.clone(), tool.to_owned());
    tokio::spawn(async move { client.call(id, &tool, json!({})).await.json() })
}

#[tokio::test]
async fn clients_with_sessions_see_all_servers() {
    let servers = FakeServers::with(&[("a", Versions::Legacy), ("n", Versions::Modern)]);
    let mut client = Client::new(&servers.gateway(), "_all");
    let handshake = client.initialize("2025-11-25", json!({})).await;
    assert_eq!(handshake["serverInfo"]["name"], "boxwood");
    assert_eq!(handshake["protocolVersion"], "2025-11-25");
    let listed = client.post(&request(1, "tools/list", json!({}))).await;
    let tools = listed.json()["result"]["tools"].clone();
    assert_eq!(tools.as_array().expect("tools").len(), 6);
    for (id, server) in [(2, "a"), (3, "n")] {
        let tool = format!("{server}__echo");
        let got = client.call(id, &tool, json!({"z": 1})).await.json();
        assert_eq!(got["result"]["arguments"], json!({"z": 1}), "{server}");
        assert_eq!(got["result"]["by"], "main", "{server}");
    }
}

#[tokio::test]
async fn every_server_may_send_requests_to_a_client_of_all() {
    let servers = FakeServers::with(&[("a", Versions::Legacy), ("b", Versions::Legacy)]);
    let (client, mut stream) = interactive(&servers).await;
    let calls =
        [(1, "a"), (2, "b")].map(|(id, server)| spawn_call(&client, id, &format!("{server}__ask")));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let question = next(&mut stream).await;
        assert_eq!(question["method"], "elicitation/create");
        assert!(!seen.contains(&question["id"]), "two servers, one id");
        seen.push(question["id"].clone());
        client.post(&answer(&question["id"])).await;
    }
    let [a, b] = calls.map(async |call| call.await.expect("no panic"));
    assert_eq!(a.await["result"]["answers"], json!([{"action": "accept"}]));
    assert_eq!(b.await["result"]["answers"], json!([{"action": "accept"}]));
    assert_eq!(servers.children("a") + servers.children("b"), 2);
    drop(stream);
    client.delete().await;
    while servers.children("a") + servers.children("b") > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_slow_server_does_not_delay_the_others() {
    let servers = FakeServers::with(&[("a", Versions::Legacy), ("b", Versions::Legacy)]);
    servers
        .fake_server("a")
        .is_slow
        .store(true, Ordering::SeqCst);
    let (client, _stream) = interactive(&servers).await;
    let slow = spawn_call(&client, 1, "a__echo");
    servers.record("a").wait("main initialize", 1).await;
    let got = client.call(2, "b__echo", json!({})).await.json();
    assert!(got.get("result").is_some(), "{got}");
    let level = request(3, "logging/setLevel", json!({"level": "error"}));
    client.post(&level).await;
    let subscribe = request(4, "resources/subscribe", json!({"uri": "mcp://b/memo:one"}));
    client.post(&subscribe).await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    client.post(&changed).await;
    servers.record("b").wait("own logging/setLevel", 1).await;
    servers.record("b").wait("own resources/subscribe", 1).await;
    servers.record("b").wait("own notifications/roots", 1).await;
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_is_cancelled() {
    let servers = FakeServers::with(&[("a", Versions::Legacy)]);
    let (client, mut stream) = interactive(&servers).await;
    let body = super::client::call(1, "a__ask", json!({})).to_string();
    let asking = tokio::spawn(async move {
        let request = client.request(http::Method::POST, body);
        let (target, principal) = (client.target.clone(), client.principal.clone());
        let answer = client.gateway.answer(target, principal, request).await;
        super::client::read_slowly(answer).await.text
    });
    let question = next(&mut stream).await;
    let cancelled = next(&mut stream).await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    let refused = asking.await.expect("no panic");
    assert!(refused.contains("did not respond"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn preferences_are_set_even_if_the_call_that_started_the_process_is_cancelled() {
    let servers = FakeServers::with(&[("a", Versions::Legacy)]);
    let record = servers.record("a");
    *record.unanswered.lock().expect("lock") = Some(("own", "logging/setLevel"));
    let (client, _stream) = interactive(&servers).await;
    let level = request(1, "logging/setLevel", json!({"level": "error"}));
    client.post(&level).await;
    for (id, uri) in [(2, "mcp://a/memo:one"), (3, "mcp://a/memo:two")] {
        let subscribe = request(id, "resources/subscribe", json!({"uri": uri}));
        client.post(&subscribe).await;
    }
    let cancelled = spawn_call(&client, 4, "a__echo");
    record.wait("own logging/setLevel", 1).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}});
    client.post(&cancel).await;
    cancelled.abort();
    assert!(record.received("own resources/subscribe").is_empty());
    tokio::time::sleep(Duration::from_secs(10)).await;
    record.wait("own resources/subscribe", 2).await;
}
