//! Notifications and preferences of legacy clients that share a process.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::{Stream, read_slowly, request};
use super::*;
use crate::gateway::notifications::preferences::{MAX_TOTAL_URI_BYTES, MAX_URI_BYTES};
use crate::gateway::tests::modern::{FakeServers, Versions};

async fn set_level(client: &Client, level: &str) -> Value {
    let body = request(90, "logging/setLevel", json!({"level": level}));
    client.post(&body).await.json()
}

async fn subscribe(client: &Client, verb: &str, uri: &str) -> Value {
    let body = request(91, &format!("resources/{verb}"), json!({"uri": uri}));
    client.post(&body).await.json()
}

fn levels(messages: &[Value]) -> Vec<&str> {
    let levels = messages
        .iter()
        .filter_map(|one| one["params"]["level"].as_str());
    levels.collect()
}

#[tokio::test]
async fn each_client_gets_log_messages_of_its_own_level() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let loud = Client::initialized(&gateway, "one", json!({})).await;
    let quiet = Client::initialized(&gateway, "one", json!({})).await;
    assert_eq!(set_level(&loud, "debug").await["result"], json!({}));
    assert_eq!(set_level(&quiet, "error").await["result"], json!({}));
    assert_eq!(set_level(&quiet, "shouting").await["error"]["code"], -32602);
    let received = registry.record("one").received("logging/setLevel");
    assert_eq!(
        received,
        ["logging/setLevel \"debug\""],
        "the most verbose level"
    );

    let got = loud.call(1, "log", json!({"who": "loud"})).await.messages();
    assert_eq!(levels(&got), ["debug", "info", "error"]);
    assert_eq!(
        got.last().map(|last| &last["id"]),
        Some(&json!(1)),
        "before the answer"
    );
    let got = quiet
        .call(1, "log", json!({"who": "quiet"}))
        .await
        .messages();
    assert_eq!(levels(&got), ["error"]);

    loud.delete().await;
    let received = registry.record("one").wait("logging/setLevel", 2).await;
    assert_eq!(received[1], "logging/setLevel \"error\"");
}

#[tokio::test]
async fn an_idle_server_gets_the_level_when_it_starts() {
    let registry = LegacyServers::with(&["one"]);
    let all = Client::initialized(&registry.gateway(), "_all", json!({})).await;
    assert_eq!(set_level(&all, "shouting").await["error"]["code"], -32602);
    assert_eq!(set_level(&all, "error").await["result"], json!({}));
    all.call(1, "one__echo", json!({})).await;
    let received = registry.record("one").wait("logging/setLevel", 1).await;
    assert_eq!(received, ["logging/setLevel \"error\""]);
}

#[tokio::test]
async fn each_client_has_its_own_subscriptions_and_the_server_gets_each_once() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let one = Client::initialized(&gateway, "one", json!({})).await;
    let two = Client::initialized(&gateway, "one", json!({})).await;
    let mut news_one = Stream::of(one.get(None).await);
    let mut news_two = Stream::of(two.get(None).await);
    for (client, uri) in [(&one, "x://a"), (&two, "x://a"), (&two, "x://b")] {
        assert_eq!(
            subscribe(client, "subscribe", uri).await["result"],
            json!({})
        );
    }
    let received = registry.record("one").received("resources/subscribe");
    assert_eq!(
        received,
        [
            r#"resources/subscribe "x://a""#,
            r#"resources/subscribe "x://b""#
        ]
    );

    for uri in ["x://b", "x://a"] {
        one.call(1, "touch", json!({"uri": uri})).await;
    }
    let uri =
        |event: Option<(String, Value)>| event.map(|(_, message)| message["params"]["uri"].clone());
    assert_eq!(uri(news_one.next().await), Some(json!("x://a")));
    assert_eq!(uri(news_two.next().await), Some(json!("x://b")));
    assert_eq!(uri(news_two.next().await), Some(json!("x://a")));

    subscribe(&one, "unsubscribe", "x://a").await;
    assert!(
        registry
            .record("one")
            .received("resources/unsubscribe")
            .is_empty(),
        "two still wants it"
    );
    drop(news_two);
    two.delete().await;
    let mut received = registry
        .record("one")
        .wait("resources/unsubscribe", 2)
        .await;
    received.sort();
    assert_eq!(
        received,
        [
            r#"resources/unsubscribe "x://a""#,
            r#"resources/unsubscribe "x://b""#
        ]
    );
}

#[tokio::test]
async fn subscriptions_of_cancelled_requests_count_for_the_limit() {
    let servers = FakeServers::with(&[("one", Versions::Legacy)]);
    let record = servers.record("one");
    *record.unanswered.lock().expect("lock") = Some(("main", "resources/subscribe"));
    let client = Client::initialized(&servers.gateway(), "one", json!({})).await;
    client.call(1, "echo", json!({})).await;
    for number in 1..=MAX_TOTAL_URI_BYTES / MAX_URI_BYTES {
        let uri = format!("{number:0MAX_URI_BYTES$}");
        let body = request(91, "resources/subscribe", json!({"uri": uri}));
        let asking = client.clone();
        let asking = tokio::spawn(async move { asking.post(&body).await });
        record.wait("main resources/subscribe", number).await;
        let params = json!({"requestId": 91});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        client.post(&cancel).await;
        asking.await.expect("no panic");
    }
    let refused = subscribe(&client, "subscribe", "x://a").await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_unsubscription_does_not_count_for_the_limit() {
    let servers = FakeServers::with(&[("one", Versions::Legacy)]);
    let record = servers.record("one");
    *record.unanswered.lock().expect("lock") = Some(("main", "resources/unsubscribe"));
    let client = Client::initialized(&servers.gateway(), "one", json!({})).await;
    for number in 0..=MAX_TOTAL_URI_BYTES / MAX_URI_BYTES {
        let uri = format!("{number:0MAX_URI_BYTES$}");
        let answer = subscribe(&client, "subscribe", &uri).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
        let body = request(91, "resources/unsubscribe", json!({"uri": uri}));
        let request = client.request(Method::POST, body.to_string());
        let answer = client.send(request).await;
        let failed = read_slowly(answer).await.text;
        assert!(failed.contains("did not respond"), "{failed}");
    }
}

#[tokio::test]
async fn a_new_shared_process_gets_the_preferences() {
    a_new_process_gets_preferences(json!({})).await;
}

#[tokio::test]
async fn a_new_dedicated_process_gets_the_preferences() {
    a_new_process_gets_preferences(json!({"roots": {}})).await;
}

async fn a_new_process_gets_preferences(capabilities: Value) {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let client = Client::initialized(&gateway, "one", capabilities).await;
    let mut news = Stream::of(client.get(None).await);
    set_level(&client, "warning").await;
    subscribe(&client, "subscribe", "x://a").await;
    subscribe(&client, "subscribe", "x://b").await;
    subscribe(&client, "unsubscribe", "x://b").await;
    client.call(1, "die", json!({})).await;
    client.call(2, "echo", json!({})).await;
    registry.record("one").wait("logging/setLevel", 2).await;
    let subscribed = registry.record("one").wait("resources/subscribe", 3).await;
    assert_eq!(subscribed[2..], [r#"resources/subscribe "x://a""#]);
    client.call(3, "touch", json!({"uri": "x://a"})).await;
    let uri = news
        .next()
        .await
        .map(|(_, message)| message["params"]["uri"].clone());
    assert_eq!(uri, Some(json!("x://a")));
}

#[tokio::test]
async fn all_servers_behind_one_address() {
    all_servers(json!({}), 1).await;
    // The dedicated process is subscribed too, because only it reports changes that calls on it make.
    all_servers(json!({"roots": {}}), 2).await;
}

async fn all_servers(capabilities: Value, expected_requests: usize) {
    let registry = LegacyServers::with(&["one", "two"]);
    let gateway = registry.gateway();
    let initialized = Client::initialized(&gateway, "one", json!({})).await;
    initialized.call(1, "echo", json!({})).await;
    Client::initialized(&gateway, "two", json!({})).await;
    let client = Client::initialized(&gateway, "_all", capabilities).await;
    let got = client
        .post(&request(1, "tools/list", json!({})))
        .await
        .json();
    let tools = got["result"]["tools"].as_array().expect("tools").clone();
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["one__echo", "two__echo"]);
    let got = client.call(2, "two__echo", json!({"a": 1})).await;
    assert_eq!(got.status, StatusCode::OK);
    assert_eq!(got.json()["result"]["echo"], json!({"a": 1}));

    let mut news = Stream::of(client.get(None).await);
    let answer = subscribe(&client, "subscribe", "mcp://two/x://a").await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    assert_eq!(
        registry.record("two").received("resources/subscribe").len(),
        expected_requests
    );
    client.call(3, "two__touch", json!({"uri": "x://a"})).await;
    let uri = news
        .next()
        .await
        .map(|(_, message)| message["params"]["uri"].clone());
    assert_eq!(uri, Some(json!("mcp://two/x://a")));
}

#[tokio::test]
async fn log_messages_of_one_clients_calls_reach_no_other_principal() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let begin = async |name: &str| {
        let mut client = Client::new(&gateway, "one");
        client.principal = Some(name.to_owned());
        client.initialize("2025-11-25", json!({})).await;
        client
    };
    let (ann, bob) = (begin("ann").await, begin("bob").await);
    set_level(&ann, "debug").await;
    subscribe(&ann, "subscribe", "x://a").await;
    let mut news = Stream::of(ann.get(None).await);
    let messages = ann.call(1, "log", json!({"who": "ann"})).await.messages();
    assert_eq!(levels(&messages), ["debug", "info", "error"]);
    // From now on, a log message cannot be assigned to one of them.
    let (waiting, log) = tokio::join!(
        ann.call(2, "echo", json!({"wait_ms": 500})),
        bob.call(2, "log", json!({"who": "bob"}))
    );
    for got in [&waiting, &log] {
        assert_eq!(got.status, StatusCode::OK);
        assert!(levels(&got.messages()).is_empty(), "{}", got.text);
    }
    bob.call(3, "touch", json!({"uri": "x://a"})).await;
    let (_, first) = news.next().await.expect("news");
    assert_eq!(
        first["method"], "notifications/resources/updated",
        "{first}"
    );
}
