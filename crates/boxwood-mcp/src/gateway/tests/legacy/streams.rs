//! Event streams of legacy clients: resuming, backlog, the HTTP+SSE transport.

use bytes::Bytes;
use http::Method;
use http::{Request, StatusCode};
use serde_json::json;

use super::client::{Stream, call, read, request};
use super::*;
use crate::gateway::GatewaySettings;

#[tokio::test]
async fn a_broken_stream_is_resumed_after_the_last_event() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let body = call(1, "progress", json!({"who": "me", "wait_ms": 60}));
    let mut stream = Stream::of(
        client
            .send(client.request(Method::POST, body.to_string()))
            .await,
    );
    let (id, first) = stream.next().await.expect("progress");
    assert_eq!(first["params"]["progress"], 1);
    drop(stream);

    let mut rest = Stream::of(client.get(Some(&id)).await);
    let mut steps = Vec::new();
    while let Some((_, message)) = rest.next().await {
        steps.push(message["params"]["progress"].clone());
        if message["id"] == 1 {
            assert_eq!(message["result"]["who"], "me");
        }
    }
    assert_eq!(steps, [json!(2), json!(3), json!(null)]);
    assert!(
        registry
            .record("one")
            .received("notifications/cancelled")
            .is_empty()
    );

    let replayed = read(client.get(Some(&id)).await).await;
    assert_eq!(replayed.messages().len(), 3, "a little longer");
    for unknown in ["99-1", "nonsense", "1-57", "0-57"] {
        let answer = client.get(Some(unknown)).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{unknown}");
    }
    let other = Client::initialized(&client.gateway, "one", json!({})).await;
    assert_eq!(
        other.get(Some(&id)).await.status(),
        StatusCode::BAD_REQUEST,
        "not its own"
    );
}

#[tokio::test]
async fn only_the_newest_version_gets_a_priming_event() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    for (version, is_primed) in [("2025-06-18", false), ("2025-11-25", true)] {
        let mut client = Client::new(&gateway, "one");
        client.initialize(version, json!({})).await;
        let got = client.call(1, "progress", json!({})).await;
        assert_eq!(
            got.text.starts_with("id: 1-0\nretry: "),
            is_primed,
            "{}",
            got.text
        );
    }
}

#[tokio::test]
async fn a_second_reader_takes_over_the_standalone_stream() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let mut first = Stream::of(client.get(None).await);
    let subscribed = request(1, "resources/subscribe", json!({"uri": "x://a"}));
    client.post(&subscribed).await;
    let mut second = Stream::of(client.get(None).await);
    assert!(first.next().await.is_none());
    client.call(2, "touch", json!({"uri": "x://a"})).await;
    let (_, message) = second.next().await.expect("news");
    assert_eq!(message["method"], "notifications/resources/updated");
    client.delete().await;
    assert!(second.next().await.is_none(), "the session is over");
}

fn legacy_request(method: Method, uri: &str, body: &str) -> Request<Bytes> {
    let request = Request::builder().method(method).uri(uri);
    let request = request.header("content-type", "application/json");
    request.body(body.to_owned().into()).expect("a request")
}

#[tokio::test]
async fn clients_of_version_2024_11_05_use_one_stream_and_one_post_address() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let client = Client::new(&gateway, "one");
    let (target, me) = (client.target.clone(), client.principal.clone());
    let open = legacy_request(Method::GET, "/base/mcp/one/sse", "");
    let answer = gateway.sse_open(target.clone(), me.clone(), open).await;
    let mut stream = client::LegacySseStream::of(answer);
    let endpoint = stream.endpoint().await;
    assert!(
        endpoint.starts_with("/base/mcp/one/messages?sessionId="),
        "{endpoint}"
    );

    let send = async |who: &Option<String>, body: String| {
        let message = legacy_request(Method::POST, &endpoint, &body);
        gateway
            .sse_message(target.clone(), who.clone(), message)
            .await
            .status()
    };
    let early = request(1, "tools/list", json!({})).to_string();
    assert_eq!(send(&me, early.clone()).await, StatusCode::ACCEPTED);
    assert_eq!(stream.next().await["error"]["code"], -32600, "not begun");
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {"elicitation": {}}});
    send(&me, request(2, "initialize", params).to_string()).await;
    let handshake = stream.next().await;
    assert_eq!(handshake["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(
        send(&Some("you".to_owned()), early.clone()).await,
        StatusCode::NOT_FOUND
    );
    assert_eq!(send(&None, early).await, StatusCode::NOT_FOUND);

    send(&me, call(3, "ask", json!({})).to_string()).await;
    let question = stream.next().await;
    assert_eq!(question["method"], "elicitation/create");
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "so"}});
    send(&me, reply.to_string()).await;
    assert_eq!(stream.next().await["result"]["answered"]["action"], "so");

    drop(stream);
    assert_eq!(gateway.inner.sessions.count(), 0, "it ends with its stream");
    let got = send(&me, request(4, "ping", json!({})).to_string()).await;
    assert_eq!(got, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_unread_stream_does_not_keep_its_session() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let client = Client::new(&gateway, "one");
    let (target, me) = (client.target.clone(), client.principal.clone());
    let open = legacy_request(Method::GET, "/mcp/one/sse", "");
    let answer = gateway.sse_open(target.clone(), me.clone(), open).await;
    let mut stream = client::LegacySseStream::of(answer);
    let endpoint = stream.endpoint().await;
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {"elicitation": {}}});
    let initialize = request(0, "initialize", params).to_string();
    let message = legacy_request(Method::POST, &endpoint, &initialize);
    gateway.sse_message(target, me, message).await;
    stream.next().await;
    assert_eq!(registry.children("one"), 1);
    let (_, id) = endpoint.split_once('=').expect("an id");
    gateway.inner.sessions.end(id);
    for _ in 0..200 {
        if registry.children("one") == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the process of the session runs on");
}

#[tokio::test]
async fn unread_responses_of_a_client_are_bounded() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let client = Client::new(&gateway, "one");
    let (target, me) = (client.target.clone(), client.principal.clone());
    let open = legacy_request(Method::GET, "/mcp/one/sse", "");
    let answer = gateway.sse_open(target.clone(), me.clone(), open).await;
    let mut stream = client::LegacySseStream::of(answer);
    let endpoint = stream.endpoint().await;
    let send = async |body: String| {
        let message = legacy_request(Method::POST, &endpoint, &body);
        let answer = gateway.sse_message(target.clone(), me.clone(), message);
        answer.await.status()
    };
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}});
    send(request(0, "initialize", params).to_string()).await;
    stream.next().await;
    let mut refused = None;
    for id in 1..=20 {
        let big = call(id, "big", json!({"bytes": 8 << 20})).to_string();
        if send(big).await != StatusCode::ACCEPTED {
            refused = Some(id);
            break;
        }
        registry
            .record("one")
            .wait("tools/call", usize::try_from(id).expect("small"))
            .await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert!(refused.is_some_and(|id| id > 2), "{refused:?}");
    for id in 1..refused.unwrap_or_default() {
        assert_eq!(stream.next().await["id"], id, "nothing is lost");
    }
    let small = call(99, "echo", json!({})).to_string();
    assert_eq!(send(small).await, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn small_unread_responses_are_bounded_over_all_sessions_of_a_client() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway_with(GatewaySettings {
        max_unread: 64 * 1024,
        ..GatewaySettings::default()
    });
    let client = Client::new(&gateway, "one");
    let (target, me) = (client.target.clone(), client.principal.clone());
    let opened = async || {
        let open = legacy_request(Method::GET, "/mcp/one/sse", "");
        let answer = gateway.sse_open(target.clone(), me.clone(), open).await;
        let mut stream = client::LegacySseStream::of(answer);
        let endpoint = stream.endpoint().await;
        (stream, endpoint)
    };
    let send = async |endpoint: &str, id: u64| {
        let message = legacy_request(
            Method::POST,
            endpoint,
            &call(id, "echo", json!({})).to_string(),
        );
        let answer = gateway.sse_message(target.clone(), me.clone(), message);
        let status = answer.await.status();
        tokio::task::yield_now().await;
        status
    };
    let (mut unread, endpoint) = opened().await;
    let mut sent = 0;
    while send(&endpoint, sent).await == StatusCode::ACCEPTED {
        sent += 1;
        assert!(sent < 2000, "it goes on");
    }
    let (_other, elsewhere) = opened().await;
    let status = send(&elsewhere, 1).await;
    assert_eq!(
        status,
        StatusCode::TOO_MANY_REQUESTS,
        "the sessions do not share the limit"
    );
    for _ in 0..sent {
        unread.next().await;
    }
    assert_eq!(send(&elsewhere, 1).await, StatusCode::ACCEPTED);
    assert_eq!(send(&endpoint, sent).await, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn unread_responses_are_bounded_over_all_clients() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway_with(GatewaySettings {
        max_unread: 4 << 20,
        ..GatewaySettings::default()
    });
    let big = json!({"bytes": 1_500_000});
    let one = Client::initialized(&gateway, "one", json!({})).await;
    let unread = one.request(Method::POST, call(1, "big", big.clone()).to_string());
    let unread = one.send(unread).await;
    let two = Client::initialized(&gateway, "one", json!({})).await;
    let got = two.call(1, "big", big.clone()).await.json();
    assert_eq!(got["id"], 1);
    let text = got["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("read the responses"), "{text}");
    let read = read(unread).await;
    assert_eq!(read.headers["content-type"], "application/json");
    assert!(read.text.len() > 1_500_000);
    let got = two.call(2, "big", big).await.json();
    assert!(got.get("result").is_some(), "there is room again");
}
