//! Requests of servers to legacy clients.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::{Stream, call};
use super::*;
use crate::gateway::client_session::pending_requests::{PendingRequests, Responder};
use crate::gateway::json::raw;
use crate::gateway::tests::fake_servers::pipe;
use crate::wire::{Connection, ProtocolLog, WireLimits};

fn answer(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"action": text}})
}

#[tokio::test]
async fn server_requests_are_sent_on_the_stream_of_the_call() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let client = Client::initialized(&gateway, "one", json!({"elicitation": {}})).await;
    let other = Client::initialized(&gateway, "one", json!({"elicitation": {}})).await;
    assert_eq!(registry.children("one"), 2, "each has a process of its own");

    let mut streams = Vec::new();
    for client in [&client, &other] {
        let request = client.request(Method::POST, call(7, "ask", json!({})).to_string());
        let mut stream = Stream::of(client.send(request).await);
        let (_, question) = stream.next().await.expect("a question");
        assert_eq!(question["method"], "elicitation/create");
        streams.push((client, stream, question["id"].clone()));
    }
    for (index, (client, mut stream, id)) in streams.into_iter().enumerate() {
        let text = format!("because {index}");
        let got = client.post(&answer(&id, &text)).await;
        assert_eq!(got.status, StatusCode::ACCEPTED);
        let (_, result) = stream.next().await.expect("the result");
        assert_eq!(result["id"], 7);
        assert_eq!(result["result"]["answered"]["action"], *text);
        assert!(stream.next().await.is_none(), "the stream is over");
        let second = client.post(&answer(&id, "again")).await;
        assert_eq!(second.status, StatusCode::ACCEPTED);
    }
    assert_eq!(
        registry.record("one").received("answer").len(),
        2,
        "each question is answered once"
    );
}

#[tokio::test]
async fn without_a_call_that_accepts_events_server_requests_use_the_standalone_stream() {
    let registry = LegacyServers::with(&["one"]);
    let mut client =
        Client::initialized(&registry.gateway(), "one", json!({"elicitation": {}})).await;
    let mut news = Stream::of(client.get(None).await);
    client.accept = "application/json";
    let asking = client.clone();
    let asking = tokio::spawn(async move { asking.call(1, "ask", json!({})).await });
    let (_, question) = news.next().await.expect("a question");
    client.post(&answer(&question["id"], "so")).await;
    let got = asking.await.expect("a call");
    assert_eq!(got.json()["result"]["answered"]["action"], "so");
}

#[tokio::test]
async fn an_unrequested_response_reaches_no_server() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    for capabilities in [json!({}), json!({"sampling": {}})] {
        let client = Client::initialized(&gateway, "one", capabilities).await;
        let got = client.post(&answer(&json!(1), "forged")).await;
        assert_eq!(got.status, StatusCode::ACCEPTED);
        client.call(1, "echo", json!({})).await;
    }
    assert!(registry.record("one").received("answer").is_empty());
}

#[tokio::test]
async fn a_response_to_a_process_that_ended_does_not_reach_the_next_one() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({"elicitation": {}})).await;
    let ask = async |id| {
        let request = client.request(Method::POST, call(id, "ask", json!({})).to_string());
        let mut stream = Stream::of(client.send(request).await);
        let (_, question) = stream.next().await.expect("a question");
        (stream, question["id"].clone())
    };
    let (ended, before) = ask(1).await;
    client.call(2, "die", json!({})).await;
    drop(ended);
    let (mut stream, after) = ask(3).await;
    assert_ne!(before, after, "the server has counted from one again");
    for (id, text) in [(&before, "late"), (&after, "so")] {
        let got = client.post(&answer(id, text)).await;
        assert_eq!(got.status, StatusCode::ACCEPTED);
    }
    let (_, result) = stream.next().await.expect("the result");
    assert_eq!(result["result"]["answered"]["action"], "so");
    assert_eq!(registry.record("one").received("answer"), ["answer 1"]);
}

#[tokio::test]
async fn requests_of_a_process_that_ended_are_cancelled() {
    let registry = LegacyServers::with(&["one"]);
    let mut client =
        Client::initialized(&registry.gateway(), "one", json!({"elicitation": {}})).await;
    let mut news = Stream::of(client.get(None).await);
    client.accept = "application/json";
    let asking = client.clone();
    let asking = tokio::spawn(async move { asking.call(1, "ask", json!({})).await });
    let (_, question) = news.next().await.expect("a question");
    client.call(2, "die", json!({})).await;
    let (_, taken_back) = news.next().await.expect("a cancellation");
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    asking.await.expect("a call");
}

#[tokio::test]
async fn the_open_requests_of_a_process_and_of_a_client_are_bounded() {
    let processes = [1, 2, 3].map(|_| {
        let (pipe, ends) = pipe();
        let log = Arc::<ProtocolLog>::default();
        let connection = Connection::open(Box::new(pipe), WireLimits::default(), log);
        (connection, ends)
    });
    let requests = PendingRequests::default();
    let add = |process: usize, number: usize| {
        let connection = processes[process].0.clone();
        let id = raw(&number);
        requests.add(Responder { connection, id })
    };
    for process in [0, 1] {
        let accepted = (0..100).filter(|number| add(process, *number).is_ok());
        assert_eq!(accepted.count(), 32);
    }
    assert!(add(2, 0).is_err(), "the client has 64");
    let first = requests.take_of(&processes[0].0, Some(&raw(&0)));
    assert_eq!(first.len(), 1, "not that of the other process");
    let id = add(2, 0).ok().expect("room");
    assert!(requests.take(&id).is_some());
    assert!(requests.take(&id).is_none(), "a response is taken once");
    assert!(add(0, 100).is_ok());
}

#[tokio::test]
async fn server_requests_of_a_shared_process_are_refused_at_once() {
    let registry = LegacyServers::with(&["one"]);
    let client = Client::initialized(&registry.gateway(), "one", json!({})).await;
    let got = client.call(1, "ask", json!({})).await.json();
    assert_eq!(got["result"]["answered"]["code"], -32601);
}

#[tokio::test]
async fn without_room_for_a_dedicated_process_the_shared_one_is_used() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::initialized(&gateway, "one", json!({"roots": {}})).await);
    }
    assert_eq!(registry.children("one"), 2);
    for client in &clients {
        let got = client.call(1, "echo", json!({})).await;
        assert_eq!(got.json()["result"]["unknown"], true);
    }
    clients[0].delete().await;
    tokio::task::yield_now().await;
    assert_eq!(registry.children("one"), 1, "it went with its session");
}

#[tokio::test]
async fn client_notifications_reach_only_its_dedicated_process() {
    let registry = LegacyServers::with(&["one"]);
    let gateway = registry.gateway();
    let shared = Client::initialized(&gateway, "one", json!({})).await;
    let own = Client::initialized(&gateway, "one", json!({"roots": {}})).await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    shared.post(&changed).await;
    shared.call(1, "echo", json!({})).await;
    assert!(
        registry
            .record("one")
            .received("notifications/roots")
            .is_empty()
    );
    own.post(&changed).await;
    registry.record("one").wait("notifications/roots", 1).await;
}
