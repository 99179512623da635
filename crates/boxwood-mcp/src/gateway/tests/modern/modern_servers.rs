//! Requests of modern clients are forwarded unchanged to servers that support the modern version.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::json;

use super::client::Stream;
use super::{Client, FakeServers, Versions};
use crate::gateway::tests::fake_servers::named;
use crate::gateway::{GatewaySettings, Target};
use crate::protocol_versions::{LOG_LEVEL, MODERN};

#[tokio::test]
async fn get_and_delete_are_refused() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let gateway = servers.gateway();
    for method in [Method::GET, Method::DELETE] {
        let request = Request::builder().method(method).uri("/mcp/new");
        let request = request.header("mcp-protocol-version", MODERN);
        let request = request.body(Bytes::new()).expect("a request");
        let target = Target::One(named("new"));
        let answer = gateway.answer(target, None, request).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers()["allow"], "POST");
    }
}

#[tokio::test]
async fn a_server_of_both_versions_is_called_in_the_clients_version() {
    for versions in [Versions::Both, Versions::Modern] {
        let servers = FakeServers::with(&[("new", versions)]);
        let client = Client::new(&servers.gateway(), "new");
        let discovered = client.ask("server/discover", json!({})).await;
        assert_eq!(discovered.result()["ttlMs"], 5, "it comes from the server");
        let echo = client.call("echo", json!({"a": [1.50, null]})).await;
        assert_eq!(echo.result()["arguments"], json!({"a": [1.50, null]}));
        assert_eq!(echo.result()["resultType"], "complete");
        let version = &echo.result()["meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(version, "2026-07-28");
        assert_eq!(echo.messages.len(), 1);
    }
}

#[tokio::test]
async fn progress_comes_with_the_clients_own_token() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let mut client = Client::new(&servers.gateway(), "new");
    client.meta = json!({"progressToken": "mine too"});
    let got = client.call("progress", json!({})).await;
    assert_eq!(got.messages.len(), 2);
    assert_eq!(got.messages[0]["params"]["progressToken"], "mine too");
    let token = &got.result()["meta"]["progressToken"];
    assert!(token.is_number(), "two clients may use one token: {token}");
}

#[tokio::test]
async fn log_messages_are_sent_on_request_only() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let mut client = Client::new(&servers.gateway(), "new");
    assert_eq!(client.call("log", json!({})).await.messages.len(), 1);
    client.meta = json!({LOG_LEVEL: "warning"});
    let got = client.call("log", json!({})).await;
    assert_eq!(got.messages.len(), 2);
    assert_eq!(got.messages[0]["params"]["data"], "oh");
    client.meta = json!({LOG_LEVEL: "critical"});
    assert_eq!(client.call("log", json!({})).await.messages.len(), 1);
}

#[tokio::test]
async fn errors_have_the_http_status_of_the_modern_version() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let client = Client::new(&servers.gateway(), "new");
    assert_eq!(client.call("needy", json!({})).await.error(), (400, -32021));
    assert_eq!(
        client.ask("unknown/method", json!({})).await.error(),
        (404, -32601)
    );
    for removed in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        assert_eq!(
            client.ask(removed, json!({})).await.error(),
            (404, -32601),
            "{removed}"
        );
    }
    let missing = client
        .ask("resources/read", json!({"uri": "memo:none"}))
        .await;
    assert_eq!(missing.error(), (200, -32602));
    assert_eq!(missing.last()["error"]["data"], json!({"kept": 1}));
    let missing = Client::new(&servers.gateway(), "missing");
    assert_eq!(
        missing.ask("tools/list", json!({})).await.error(),
        (404, -32603)
    );
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let client = Client::new(&servers.gateway(), "new");
    let hanging = client.send("tools/call", json!({"name": "hang"}));
    tokio::select! {
        _ = hanging => panic!("it hangs"),
        _ = servers.record("new").wait("modern tools/call \"hang\"", 1) => {}
    }
    servers
        .record("new")
        .wait("modern notifications/cancelled", 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_response_times_out_and_is_cancelled() {
    let settings = GatewaySettings {
        longest_call: Duration::from_secs(3),
        ..GatewaySettings::default()
    };
    for (versions, capabilities, process) in [
        (Versions::Both, json!({}), Some("modern")),
        (Versions::Modern, json!({}), Some("main")),
        (Versions::Legacy, json!({}), Some("main")),
        // The dedicated process stops.
        (Versions::Legacy, json!({"elicitation": {}}), None),
    ] {
        let servers = FakeServers::with(&[("some", versions)]);
        let modern = servers.gateway_with(settings.clone());
        let client = Client::with_capabilities(&modern, "some", capabilities);
        let got = client.call("hang", json!({})).await;
        assert_eq!(got.error(), (200, -32603));
        assert_eq!(got.last()["error"]["data"]["phase"], "tool_call");
        if let Some(process) = process {
            let cancelled = format!("{process} notifications/cancelled");
            servers.record("some").wait(&cancelled, 1).await;
        }
        assert_eq!(servers.children("some"), 0, "one that may hang is not kept");

        let params = json!({"notifications": {"toolsListChanged": true}});
        let mut news = Stream::of(client.send("subscriptions/listen", params).await);
        news.next().await.expect("an acknowledgement");
        let received = tokio::time::timeout(Duration::from_secs(10), news.next()).await;
        assert!(received.is_err(), "it goes on: {received:?}");
    }
}

#[tokio::test]
async fn input_required_results_are_forwarded_unchanged() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let client = Client::with_capabilities(&servers.gateway(), "new", json!({"elicitation": {}}));
    let first = client.call("ask", json!({})).await;
    assert_eq!(first.result()["resultType"], "input_required");
    assert_eq!(first.result()["requestState"], "sealed");
    let params = json!({"name": "ask", "requestState": "sealed", "inputResponses": {"q": {"action": "accept"}}});
    let second = client.ask("tools/call", params).await;
    assert_eq!(second.result()["answers"]["q"]["action"], "accept");
    assert_eq!(second.result()["state"], "sealed");
}

#[tokio::test]
async fn arguments_that_headers_repeat_are_compared() {
    for versions in [Versions::Both, Versions::Legacy] {
        let servers = FakeServers::with(&[("some", versions)]);
        let mut client = Client::new(&servers.gateway(), "some");
        let arguments = json!({"region": "eu"});
        assert_eq!(
            client.call("region", arguments.clone()).await.error(),
            (400, -32020)
        );
        client.headers = vec![("mcp-param-region", "us".to_owned())];
        assert_eq!(
            client.call("region", arguments.clone()).await.error(),
            (400, -32020)
        );
        client.headers = vec![("mcp-param-region", "=?base64?ZXU=?=".to_owned())];
        assert_eq!(
            client.call("region", arguments).await.result()["arguments"]["region"],
            "eu"
        );
        assert_eq!(
            client.call("echo", json!({})).await.status,
            200,
            "not its header"
        );
    }
}

#[tokio::test]
async fn unknown_methods_are_forwarded() {
    for (versions, process) in [(Versions::Both, "modern"), (Versions::Legacy, "main")] {
        let servers = FakeServers::with(&[("some", versions)]);
        let client = Client::new(&servers.gateway(), "some");
        client.call("echo", json!({})).await.result();
        assert_eq!(
            servers
                .record("some")
                .received(&format!("{process} vendor")),
            [format!("{process} vendor [1]")]
        );
    }
}

#[tokio::test]
async fn log_messages_reach_no_other_principal() {
    let servers = FakeServers::with(&[("new", Versions::Both)]);
    let modern = servers.gateway();
    let mut ann = Client::new(&modern, "new");
    ann.meta = json!({LOG_LEVEL: "debug"});
    let mut bob = Client::new(&modern, "new");
    bob.meta = json!({LOG_LEVEL: "debug"});
    bob.principal = ann.principal.clone();
    let own = bob.call("murmur", json!({})).await;
    assert_eq!(own.messages.len(), 2, "{:?}", own.messages);
    bob.principal = Some("bob".to_owned());
    let others = async {
        servers
            .record("new")
            .wait("modern tools/call \"hang\"", 1)
            .await;
        let unassigned = bob.call("murmur", json!({})).await;
        assert_eq!(unassigned.messages.len(), 1, "{:?}", unassigned.messages);
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    tokio::select! {
        answer = ann.send("tools/call", json!({"name": "hang"})) => {
            panic!("the client got an unassigned log message: {}", answer.status())
        }
        () = others => {}
    }
}
