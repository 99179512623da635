//! Modern clients of legacy servers.

use serde_json::json;

use super::client::Stream;
use super::{Client, FakeServers, Versions};
use crate::protocol_versions::{LOG_LEVEL, SERVER_INFO};

fn legacy_server() -> std::sync::Arc<FakeServers> {
    FakeServers::with(&[("old", Versions::Legacy)])
}

#[tokio::test]
async fn a_legacy_server_answers_discovery() {
    let servers = legacy_server();
    let client = Client::new(&servers.gateway(), "old");
    let got = client.ask("server/discover", json!({})).await;
    let result = got.result();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
    assert_eq!(result["_meta"][SERVER_INFO]["name"], "old");
    assert_eq!(result["instructions"], "be kind");
    assert!(result["ttlMs"].is_u64() && result["cacheScope"] == "private");
}

#[tokio::test]
async fn every_modern_method_works_on_a_legacy_server() {
    let servers = legacy_server();
    let client = Client::new(&servers.gateway(), "old");
    for (method, params, key, is_cacheable) in [
        ("tools/list", json!({}), "tools", true),
        ("prompts/list", json!({}), "prompts", true),
        ("prompts/get", json!({"name": "greet"}), "messages", false),
        ("resources/list", json!({}), "resources", true),
        (
            "resources/templates/list",
            json!({}),
            "resourceTemplates",
            true,
        ),
        (
            "resources/read",
            json!({"uri": "memo:one"}),
            "contents",
            true,
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "greet"}}),
            "completion",
            false,
        ),
        (
            "tools/call",
            json!({"name": "echo", "arguments": {"a": 1}}),
            "arguments",
            false,
        ),
    ] {
        let got = client.ask(method, params).await;
        let result = got.result();
        assert!(result.get(key).is_some(), "{method}: {result}");
        assert_eq!(result["resultType"], "complete", "{method}");
        assert_eq!(result.get("ttlMs").is_some(), is_cacheable, "{method}");
        assert_eq!(result["_meta"][SERVER_INFO]["name"], "old", "{method}");
    }
    assert_eq!(
        client.ask("tasks/get", json!({})).await.error(),
        (404, -32601)
    );
    let missing = client
        .ask("resources/read", json!({"uri": "memo:none"}))
        .await;
    assert_eq!(missing.error(), (200, -32602));
    assert_eq!(
        servers.children("old"),
        0,
        "no dedicated process was needed"
    );
}

#[tokio::test]
async fn progress_and_cancellation_work_with_a_legacy_server() {
    let servers = legacy_server();
    let mut client = Client::new(&servers.gateway(), "old");
    client.meta = json!({"progressToken": 9});
    let got = client.call("progress", json!({})).await;
    assert_eq!(got.messages[0]["params"]["progressToken"], 9);
    let hanging = client.send("tools/call", json!({"name": "hang"}));
    tokio::select! {
        _ = hanging => panic!("it hangs"),
        _ = servers.record("old").wait("main tools/call \"hang\"", 1) => {}
    }
    servers
        .record("old")
        .wait("main notifications/cancelled", 1)
        .await;
}

#[tokio::test]
async fn a_stream_that_is_closed_cancels_too() {
    let servers = legacy_server();
    let mut client = Client::new(&servers.gateway(), "old");
    client.capabilities = json!({"elicitation": {}});
    client.meta = json!({"progressToken": 1});
    tokio::time::pause();
    let answer = client.send("tools/call", json!({"name": "hang"})).await;
    tokio::time::resume();
    assert_eq!(
        answer.headers()["content-type"],
        "text/event-stream",
        "it shows that it lives"
    );
    drop(answer);
    servers
        .record("old")
        .wait("own notifications/cancelled", 1)
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(client.call("echo", json!({})).await.result()["by"], "own");
    assert_eq!(servers.children("old"), 1, "its process is kept");
}

#[tokio::test]
async fn logs_are_for_the_client_that_asked_for_them() {
    let servers = legacy_server();
    let modern = servers.gateway();
    let mut client = Client::new(&modern, "old");
    assert_eq!(
        client
            .call("log", json!({"who": "ann"}))
            .await
            .messages
            .len(),
        1
    );
    client.meta = json!({LOG_LEVEL: "info"});
    let got = client.call("log", json!({"who": "ann"})).await;
    assert_eq!(got.messages.len(), 2, "{:?}", got.messages);
    assert_eq!(
        got.messages[0]["params"],
        json!({"level": "warning", "data": "ann"})
    );
    assert_eq!(got.result()["by"], "own");
    assert_eq!(
        servers.record("old").received("own logging/setLevel"),
        ["own logging/setLevel \"info\""]
    );
    assert!(
        servers
            .record("old")
            .received("main logging/setLevel")
            .is_empty()
    );
}

#[tokio::test]
async fn notifications_of_a_legacy_server_are_sent_on_a_stream() {
    let servers = legacy_server();
    let modern = servers.gateway();
    let client = Client::new(&modern, "old");
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["memo:one"]});
    let answer = client
        .send("subscriptions/listen", json!({"notifications": wanted}))
        .await;
    let mut stream = Stream::of(answer);
    let first = stream.next().await.expect("an acknowledgement");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let id = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(first["params"]["_meta"][id], "mine");
    let honoured = json!({"toolsListChanged": true, "resourceSubscriptions": ["memo:one"]});
    assert_eq!(
        first["params"]["notifications"], honoured,
        "it has no news of prompts"
    );
    client.call("touch", json!({"uri": "memo:two"})).await;
    client.call("change", json!({})).await;
    client.call("touch", json!({"uri": "memo:one"})).await;
    let changed = stream.next().await.expect("news");
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"][id], "mine");
    let touched = stream.next().await.expect("news");
    assert_eq!(touched["params"]["uri"], "memo:one");
    drop(stream);
    servers
        .record("old")
        .wait("main resources/unsubscribe", 1)
        .await;
}
