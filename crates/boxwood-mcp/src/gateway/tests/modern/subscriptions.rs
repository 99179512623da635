//! `subscriptions/listen` on modern servers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::client::Stream;
use super::{Client, FakeServers, Versions};
use crate::gateway::notifications::preferences::MAX_URI_BYTES;
use crate::gateway::server_registry::ServerRegistry as _;
use crate::gateway::tests::fake_servers::named;

const ID: &str = "io.modelcontextprotocol/subscriptionId";

#[tokio::test]
async fn subscription_events_keep_the_clients_uri() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let modern = servers.gateway();
    let client = Client::new(&modern, "new");
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut one = Stream::of(client.send("subscriptions/listen", params.clone()).await);
    let mut other = Stream::of(client.send("subscriptions/listen", params).await);
    for stream in [&mut one, &mut other] {
        let first = stream.next().await.expect("an acknowledgement");
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"]["_meta"][ID], "mine");
    }
    client.call("change", json!({})).await;
    for stream in [&mut one, &mut other] {
        let news = stream.next().await.expect("news");
        assert_eq!(news["method"], "notifications/tools/list_changed");
        assert_eq!(news["params"]["_meta"][ID], "mine");
    }
    drop(one);
    servers
        .record("new")
        .wait("modern notifications/cancelled", 1)
        .await;
}

#[tokio::test]
async fn notifications_of_all_servers_are_sent_on_one_stream() {
    let servers = FakeServers::with(&[("a", Versions::Both), ("b", Versions::Legacy)]);
    let modern = servers.gateway();
    let all = Client::new(&modern, "_all");
    all.ask("tools/list", json!({})).await;
    let params = json!({"notifications": {
        "toolsListChanged": true, "resourceSubscriptions": ["mcp://b/memo:one", "mcp://zzz/memo:one"]}});
    let mut stream = Stream::of(all.send("subscriptions/listen", params).await);
    let first = stream.next().await.expect("an acknowledgement");
    let honoured = &first["params"]["notifications"];
    assert_eq!(
        honoured["resourceSubscriptions"],
        json!(["mcp://b/memo:one"])
    );
    servers
        .record("b")
        .wait("main resources/subscribe", 1)
        .await;
    servers
        .record("a")
        .wait("modern subscriptions/listen", 1)
        .await;
    all.call("b__touch", json!({"uri": "memo:one"})).await;
    let touched = stream.next().await.expect("news");
    assert_eq!(touched["params"]["uri"], "mcp://b/memo:one");
    assert_eq!(touched["params"]["_meta"][ID], "mine");
    all.call("a__change", json!({})).await;
    let changed = stream.next().await.expect("news");
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"][ID], "mine");
    servers.end("b", true);
    let fewer = stream.next().await.expect("news");
    assert_eq!(
        fewer["method"], "notifications/tools/list_changed",
        "a server that goes is news"
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_delay_servers() {
    let servers = FakeServers::with(&[("a", Versions::Both), ("b", Versions::Both)]);
    let modern = servers.gateway();
    servers.server(&named("b")).await.map(drop).expect("b");
    let a = Client::new(&modern, "a");
    a.call("echo", json!({})).await.result();
    let late = &servers.fake_server("b").is_late;
    late.store(true, Ordering::SeqCst);
    let params = json!({"notifications": {"toolsListChanged": true}});
    let all = Client::new(&modern, "_all");
    let unread = all.send("subscriptions/listen", params).await;
    servers
        .record("a")
        .wait("modern subscriptions/listen", 1)
        .await;
    servers.record("b").wait("modern server/discover", 1).await;
    for _ in 0..200 {
        a.call("change", json!({})).await.result();
    }
    late.store(false, Ordering::SeqCst);
    let b = Client::new(&modern, "b");
    let answer = tokio::time::timeout(Duration::from_secs(5), b.call("echo", json!({}))).await;
    answer
        .expect("the call does not wait for the reader")
        .result();
    drop(unread);
}

#[tokio::test]
async fn a_removed_server_does_not_end_the_other_subscriptions() {
    let servers = FakeServers::with(&[("a", Versions::Both), ("b", Versions::Legacy)]);
    let modern = servers.gateway();
    let all = Client::new(&modern, "_all");
    all.ask("tools/list", json!({})).await;
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut stream = Stream::of(all.send("subscriptions/listen", params).await);
    stream.next().await.expect("an acknowledgement");
    servers
        .record("a")
        .wait("modern subscriptions/listen", 1)
        .await;
    servers.end("b", true);
    stream.next().await.expect("news");
    all.call("a__change", json!({})).await.result();
    stream.next().await.expect("news of the one that stayed");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let received = servers.record("a").received("modern subscriptions/listen");
    assert_eq!(received.len(), 1, "{received:?}");
    servers.end("a", false);
    all.call("a__echo", json!({})).await.result();
    servers
        .record("a")
        .wait("modern subscriptions/listen", 2)
        .await;
}

#[tokio::test]
async fn the_size_of_a_listen_request_is_bounded() {
    let servers = FakeServers::with(&[("a", Versions::Both)]);
    let modern = servers.gateway();
    for target in ["a", "_all"] {
        let client = Client::new(&modern, target);
        let params =
            json!({"notifications": {"toolsListChanged": true}, "pad": "x".repeat(512 * 1024)});
        let got = client.ask("subscriptions/listen", params).await;
        assert_eq!(got.error(), (400, -32602));
    }
}

/// Subscriptions wait for each other.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_a_subscription_gets_no_further_ones() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let record = servers.record("old");
    *record.unanswered.lock().expect("lock") = Some(("main", "resources/subscribe"));
    let client = Client::new(&servers.gateway(), "old");
    let params =
        json!({"notifications": {"resourceSubscriptions": ["memo:one", "memo:two", "memo:three"]}});
    let mut stream = Stream::of(client.send("subscriptions/listen", params).await);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let first = stream.next().await.expect("an acknowledgement");
    let honoured = &first["params"]["notifications"]["resourceSubscriptions"];
    assert!(
        honoured.as_array().is_none_or(Vec::is_empty),
        "{honoured} were not promised"
    );
    let received = record.received("main resources/subscribe");
    assert_eq!(received.len(), 1, "{received:?}");
}

#[tokio::test]
async fn only_the_uri_that_is_too_long_is_left_out() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::new(&servers.gateway(), "old");
    let long = "x".repeat(MAX_URI_BYTES + 1);
    let params = json!({"notifications": {"resourceSubscriptions": [long, "memo:one"]}});
    let mut stream = Stream::of(client.send("subscriptions/listen", params).await);
    let first = stream.next().await.expect("an acknowledgement");
    assert_eq!(
        first["params"]["notifications"]["resourceSubscriptions"],
        json!(["memo:one"])
    );
}
