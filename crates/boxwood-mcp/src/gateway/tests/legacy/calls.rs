//! Calls of legacy clients: fields, ids, cancellation, limits.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::{call, request};
use super::*;
use crate::wire::BodyPermit;

#[tokio::test]
async fn unknown_fields_and_the_text_of_numbers_survive() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let body = "{\"jsonrpc\":\"2.0\",\n \"id\":\"a\\u00e4\",\r\n\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"n\":1.50,\"big\":12345678901234567890}}}";
    let got = client.post_text(body).await;
    let answer = got.json();
    assert_eq!(answer["id"], "aä");
    assert_eq!(answer["result"]["unknown"], true);
    assert_eq!(
        answer["result"]["echo"]["big"],
        12_345_678_901_234_567_890_u64
    );
}

#[tokio::test]
async fn filtered_tools_are_neither_listed_nor_called() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    for capabilities in [json!({}), json!({"roots": {}})] {
        let client = Client::initialized(&gateway, "one", capabilities).await;
        let got = client
            .post(&request(1, "tools/list", json!({})))
            .await
            .json();
        let tools = got["result"]["tools"].as_array().expect("tools").clone();
        let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["echo"]);
        let got = client.call(2, "secret", json!({})).await.json();
        assert_eq!(got["error"]["code"], -32602, "{got}");
    }
    assert!(registry.record("one").received("tools/call").is_empty());
}

#[tokio::test]
async fn a_request_without_an_id_reaches_no_server() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let mut unanswerable = call(1, "secret", json!({}));
    unanswerable
        .as_object_mut()
        .expect("an object")
        .remove("id");
    for (server, tool) in [("one", "echo"), ("_all", "one__echo")] {
        let mut client = Client::new(&gateway, server);
        client.initialize("2025-03-26", json!({"roots": {}})).await;
        // Gives a client of all servers a dedicated process too.
        client.call(1, tool, json!({})).await;
        let got = client.post(&unanswerable).await;
        assert_eq!(got.status, StatusCode::ACCEPTED);
        client.call(2, tool, json!({})).await;
        client.delete().await;
    }
    let received = registry.record("one").received("tools/call");
    assert!(
        !received.iter().any(|line| line.contains("secret")),
        "{received:?}"
    );
}

#[tokio::test]
async fn ambiguous_calls_are_refused() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    for capabilities in [json!({}), json!({"roots": {}})] {
        let client = Client::initialized(&gateway, "one", capabilities).await;
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"secret"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"secret"}}"#,
        ] {
            let got = client.post_text(body).await;
            assert_eq!(got.status, StatusCode::BAD_REQUEST);
            assert_eq!(got.json()["error"]["code"], -32600);
        }
    }
    let record = registry.record("one");
    assert!(record.received("ping").is_empty() && record.received("tools/call").is_empty());
}

#[tokio::test]
async fn clients_with_the_same_ids_and_tokens_get_their_own_messages() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let mut calls = tokio::task::JoinSet::new();
    for who in ["left", "right"] {
        let client = Client::initialized(&gateway, "one", json!({})).await;
        for id in 1..=10 {
            let client = client.clone();
            calls.spawn(async move {
                let arguments = json!({"who": format!("{who}{id}"), "wait_ms": 5});
                (
                    format!("{who}{id}"),
                    id,
                    client.call(id, "progress", arguments).await,
                )
            });
        }
    }
    while let Some(done) = calls.join_next().await {
        let (who, id, got) = done.expect("a call");
        assert!(got.is_events(), "progress came first");
        let messages = got.messages();
        let (last, news) = messages.split_last().expect("an answer");
        assert_eq!(news.len(), 3, "{messages:?}");
        for (index, message) in news.iter().enumerate() {
            assert_eq!(message["params"]["progressToken"], id);
            assert_eq!(message["params"]["message"], *who);
            assert_eq!(message["params"]["progress"], index + 1);
        }
        assert_eq!(last["id"], id);
        assert_eq!(last["result"]["who"], *who);
    }
    assert_eq!(
        registry.record("one").received("initialize").len(),
        1,
        "one process"
    );
}

#[tokio::test]
async fn an_id_is_used_once_at_a_time() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let slow = client.clone();
    let slow = tokio::spawn(async move { slow.call(1, "echo", json!({"wait_ms": 300})).await });
    registry.record("one").wait("tools/call", 1).await;
    let got = client.call(1, "echo", json!({})).await.json();
    assert_eq!(got["error"]["code"], -32600);
    assert_eq!(
        slow.await.expect("a call").json()["result"]["unknown"],
        true
    );
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_server_by_its_own_id() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let hanging = client.clone();
    let hanging = tokio::spawn(async move { hanging.call(5, "hang", json!({})).await });
    registry.record("one").wait("tools/call", 1).await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    assert_eq!(client.post(&cancelled).await.status, StatusCode::ACCEPTED);
    let got = hanging.await.expect("a call");
    assert!(got.messages().is_empty() && got.is_events(), "{}", got.text);
    let received = registry
        .record("one")
        .wait("notifications/cancelled", 1)
        .await;
    let id: u64 = received[0]
        .rsplit(' ')
        .next()
        .and_then(|id| id.parse().ok())
        .expect("an id");
    assert!(id > 1_000_000, "assigned by the gateway");
    let got = client.call(5, "echo", json!({})).await;
    assert_eq!(
        got.json()["result"]["unknown"],
        true,
        "the id is free again"
    );
}

#[tokio::test]
async fn a_lost_connection_does_not_cancel_the_call() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let disconnecting = client.clone();
    let disconnecting =
        tokio::spawn(async move { disconnecting.call(1, "echo", json!({"wait_ms": 200})).await });
    registry.record("one").wait("tools/call", 1).await;
    disconnecting.abort();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(
        registry
            .record("one")
            .received("notifications/cancelled")
            .is_empty()
    );
    let got = client.call(1, "echo", json!({})).await;
    assert_eq!(got.json()["result"]["unknown"], true, "the call is over");
}

#[tokio::test]
async fn a_server_that_exits_fails_its_calls_and_is_restarted_for_the_next() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    for capabilities in [json!({}), json!({"sampling": {}})] {
        let client = Client::initialized(&gateway, "one", capabilities).await;
        let before = registry.record("one").received("tools/call").len();
        let hanging = client.clone();
        let hanging = tokio::spawn(async move { hanging.call(1, "hang", json!({})).await });
        registry.record("one").wait("tools/call", before + 1).await;
        let died = client.call(2, "die", json!({})).await;
        for (id, got) in [(1, hanging.await.expect("a call")), (2, died)] {
            let answer: Value = got.json();
            assert_eq!(answer["id"], id);
            assert_eq!(answer["error"]["data"]["phase"], "runtime", "{answer}");
            let text = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(text.contains("exited"), "{text}");
        }
        let got = client.call(3, "echo", json!({})).await;
        assert_eq!(got.json()["result"]["unknown"], true);
    }
}

#[tokio::test]
async fn long_results_arrive_whole() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let bytes = 8 << 20;
    let got = client.call(1, "big", json!({"bytes": bytes})).await;
    let text = got.json()["result"]["text"].as_str().map(str::len);
    assert_eq!(text, Some(bytes));
}

#[tokio::test]
async fn a_client_that_accepts_only_json_gets_only_the_response() {
    let registry = LegacyServers::with(&["one"]);
    let mut client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    client.accept = "application/json";
    let got = client.call(1, "progress", json!({"who": "me"})).await;
    assert!(!got.is_events());
    assert_eq!(got.json()["result"]["who"], "me");
    client.accept = "text/event-stream";
    let got = client.call(2, "echo", json!({})).await;
    assert!(got.is_events());
    assert_eq!(got.messages()[0]["id"], 2);
    assert_eq!(got.headers["x-accel-buffering"], "no");
}

#[tokio::test(start_paused = true)]
async fn a_slow_response_becomes_a_stream_with_keep_alive_comments() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let request = client.request(
        Method::POST,
        call(1, "echo", json!({"wait_ms": 50_000})).to_string(),
    );
    let got = client::read_slowly(client.send(request).await).await;
    assert!(got.is_events());
    assert!(got.text.contains(": alive\n\n"), "{}", got.text);
    assert_eq!(got.messages()[0]["result"]["unknown"], true);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_response_times_out_and_is_cancelled() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let request = client.request(Method::POST, call(1, "hang", json!({})).to_string());
    let got = client::read_slowly(client.send(request).await).await;
    let answer = got.messages().pop().expect("an answer");
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["error"]["data"]["phase"], "tool_call", "{answer}");
    registry
        .record("one")
        .wait("notifications/cancelled", 1)
        .await;
}

/// The bytes count until the server has received the request, or longer if the request may be sent again.
#[tokio::test]
async fn a_request_counts_for_as_long_as_its_bytes_are_held() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    // With all servers, a request may be repeated with other parameters.
    for (count, server, tool, is_held) in
        [(1, "one", "hang", false), (2, "_all", "one__hang", true)]
    {
        let mut client = Client::initialized(&gateway, server, json!({})).await;
        client.accept = "text/event-stream";
        let counted = Arc::new(());
        let weak = Arc::downgrade(&counted);
        let mut hang = client.request(Method::POST, call(1, tool, json!({})).to_string());
        hang.extensions_mut().insert(BodyPermit::new(counted));
        let answer = client.send(hang).await;
        assert_eq!(answer.status(), StatusCode::OK);
        registry
            .record("one")
            .wait("tools/call \"hang\"", count)
            .await;
        let is_dropped = async || {
            while weak.upgrade().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if is_held {
            assert!(weak.upgrade().is_some(), "the running call holds the bytes");
            client.delete().await;
        }
        let dropped = tokio::time::timeout(Duration::from_secs(20), is_dropped()).await;
        assert!(dropped.is_ok(), "{server}");
        drop(answer);
    }
}
