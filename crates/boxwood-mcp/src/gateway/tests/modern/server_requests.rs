//! Requests of legacy servers to modern clients.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Got;
use super::{Client, FakeServers, Knows};

fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn again(tool: &str, got: &Got, answers: &Value) -> Value {
    json!({"name": tool, "arguments": {}, "requestState": got.result()["requestState"], "inputResponses": answers})
}

#[tokio::test]
async fn a_server_request_becomes_an_input_required_result() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    let first = client.call("ask", json!({})).await;
    assert_eq!(first.result()["resultType"], "input_required");
    let asked = &first.result()["inputRequests"];
    assert_eq!(asked["input-1"]["method"], "elicitation/create");
    assert_eq!(asked["input-1"]["params"]["message"], "why?");
    let answer = json!({"action": "accept", "content": {"why": "so"}});
    let answers = json!({"input-1": answer, "what is this": {}});
    let second = client
        .ask("tools/call", again("ask", &first, &answers))
        .await;
    assert_eq!(second.result()["answers"], json!([answer]));
    assert_eq!(second.result()["resultType"], "complete");
    let initialized = servers.record("old").heard("own initialize");
    assert_eq!(initialized.len(), 1);
    assert!(initialized[0].contains("sampling"), "{initialized:?}");
    client.call("echo", json!({})).await.result();
    assert_eq!(
        servers.record("old").heard("own initialize").len(),
        1,
        "the process is kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_with_constant_notifications_can_send_requests() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    servers
        .record("old")
        .is_chatty
        .store(true, Ordering::SeqCst);
    let modern = servers.gateway();
    let client = Client::able(&modern, "old", able());
    client.call("echo", json!({})).await.result();
    let first = client.call("ask", json!({})).await;
    assert_eq!(first.result()["resultType"], "input_required");
    let answers = json!({"input-1": {"action": "accept"}});
    let second = client
        .ask("tools/call", again("ask", &first, &answers))
        .await;
    assert_eq!(second.result()["answers"], json!([{"action": "accept"}]));
}

#[tokio::test]
async fn several_server_requests_reach_the_client_together_or_in_turn() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    let both = client.call("ask_both", json!({})).await;
    let asked = both.result()["inputRequests"]
        .as_object()
        .expect("questions")
        .clone();
    assert_eq!(asked.len(), 2);
    let answers: Value = asked
        .keys()
        .map(|key| (key.clone(), json!({"to": key})))
        .collect();
    let done = client
        .ask("tools/call", again("ask_both", &both, &answers))
        .await;
    assert_eq!(
        done.result()["answers"].as_array().expect("answers").len(),
        2
    );
    let first = client.call("ask_on", json!({})).await;
    let second = client
        .ask(
            "tools/call",
            again("ask_on", &first, &json!({"input-1": {"n": 1}})),
        )
        .await;
    assert_eq!(
        second.result()["inputRequests"]["input-2"]["method"],
        "roots/list"
    );
    assert_ne!(
        first.result()["requestState"],
        second.result()["requestState"]
    );
    let done = client
        .ask(
            "tools/call",
            again("ask_on", &second, &json!({"input-2": {"n": 2}})),
        )
        .await;
    assert_eq!(done.result()["answers"], json!([{"n": 1}, {"n": 2}]));
}

#[tokio::test]
async fn open_requests_are_repeated() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    let first = client.call("ask", json!({})).await;
    let again_asked = client
        .ask("tools/call", again("ask", &first, &json!({"other": {}})))
        .await;
    assert_eq!(again_asked.result()["resultType"], "input_required");
    assert!(
        again_asked.result()["inputRequests"]
            .get("input-1")
            .is_some()
    );
    let wrong = client
        .ask(
            "tools/call",
            again("ask", &again_asked, &json!({"input-1": 5})),
        )
        .await;
    assert_eq!(wrong.error(), (200, -32602));
    let done = client
        .ask(
            "tools/call",
            again("ask", &again_asked, &json!({"input-1": {"a": 1}})),
        )
        .await;
    assert_eq!(done.result()["answers"], json!([{"a": 1}]));
}

#[tokio::test]
async fn a_suspended_call_is_resumed_once_and_only_by_its_client() {
    let servers = FakeServers::with(&[("old", Knows::Sessions), ("other", Knows::Sessions)]);
    let modern = servers.gateway();
    let client = Client::able(&modern, "old", able());
    let first = client.call("ask", json!({})).await;
    let answers = json!({"input-1": {"a": 1}});
    let mut stranger = Client::able(&modern, "old", able());
    stranger.principal = Some("bob".to_owned());
    let elsewhere = Client::able(&modern, "other", able());
    for thief in [&stranger, &elsewhere] {
        let got = thief
            .ask("tools/call", again("ask", &first, &answers))
            .await;
        assert_eq!(got.error(), (200, -32602));
    }
    let mut changed = again("ask", &first, &answers);
    changed["arguments"] = json!({"another": true});
    assert_eq!(
        client.ask("tools/call", changed).await.error(),
        (200, -32602)
    );
    let mut tampered = again("ask", &first, &answers);
    tampered["requestState"] = json!("0123456789abcdef0123456789abcdef");
    assert_eq!(
        client.ask("tools/call", tampered).await.error(),
        (200, -32602)
    );
    let done = client
        .ask("tools/call", again("ask", &first, &answers))
        .await;
    assert_eq!(done.result()["answers"], json!([{"a": 1}]));
    let twice = client
        .ask("tools/call", again("ask", &first, &answers))
        .await;
    assert_eq!(twice.error(), (200, -32602));
}

#[tokio::test]
async fn a_call_without_input_of_the_client_is_cancelled() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    let first = client.call("ask", json!({})).await;
    assert_eq!(servers.children("old"), 1);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(301)).await;
    tokio::time::resume();
    servers
        .record("old")
        .wait("own notifications/cancelled", 1)
        .await;
    client.call("echo", json!({})).await.result();
    assert_eq!(servers.children("old"), 1, "its process is kept");
    let late = client
        .ask("tools/call", again("ask", &first, &json!({"input-1": {}})))
        .await;
    assert_eq!(late.error(), (200, -32602));
}

#[tokio::test]
async fn server_requests_do_not_reach_clients_without_capabilities() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::new(&servers.gateway(), "old");
    let got = client.call("ask", json!({})).await;
    assert_eq!(
        got.result()["answers"][0]["code"],
        -32601,
        "the server was told so"
    );
    assert_eq!(client.call("visit", json!({})).await.error(), (200, -32042));
}

#[tokio::test]
async fn concurrent_calls_get_dedicated_processes_up_to_the_limit() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(client.call("ask", json!({})).await);
    }
    assert_eq!(servers.children("old"), 3);
    let shared = client.call("echo", json!({})).await;
    assert_eq!(shared.result()["by"], "main", "no room for another");
    for first in &open {
        let done = client
            .ask(
                "tools/call",
                again("ask", first, &json!({"input-1": {"a": 1}})),
            )
            .await;
        assert_eq!(done.result()["answers"], json!([{"a": 1}]));
    }
}

#[tokio::test]
async fn an_idle_process_is_stopped_for_another_client_at_the_limit() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let modern = servers.gateway();
    for who in ["ann", "bob", "eve", "joe"] {
        let mut client = Client::able(&modern, "old", able());
        client.principal = Some(who.to_owned());
        assert_eq!(
            client.call("echo", json!({})).await.result()["by"],
            "own",
            "{who}"
        );
    }
    assert_eq!(servers.children("old"), 3);
    assert_eq!(servers.record("old").heard("own initialize").len(), 4);
}

#[tokio::test]
async fn progress_has_the_token_of_the_current_request() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let mut client = Client::able(&servers.gateway(), "old", able());
    client.meta = json!({"progressToken": "first"});
    let first = client.call("ask_and_tell", json!({})).await;
    client.meta = json!({"progressToken": "second"});
    let answers = json!({"input-1": {"action": "accept"}});
    let done = client
        .ask("tools/call", again("ask_and_tell", &first, &answers))
        .await;
    assert_eq!(done.messages.len(), 2, "{:?}", done.messages);
    assert_eq!(done.messages[0]["params"]["progressToken"], "second");
}

#[tokio::test]
async fn a_client_with_capabilities_gets_lists_from_its_own_process() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let modern = servers.gateway();
    let client = Client::able(&modern, "old", able());
    let listed = client.ask("tools/list", json!({})).await;
    assert_eq!(listed.result()["resultType"], "complete");
    assert_eq!(servers.record("old").heard("own tools/list").len(), 1);
    client.call("echo", json!({})).await.result();
    assert_eq!(servers.children("old"), 1);
    Client::able(&modern, "_all", able())
        .ask("tools/list", json!({}))
        .await;
    assert_eq!(
        servers.record("old").heard("own tools/list").len(),
        1,
        "not for each server"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_extended_without_input() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    let mut got = client.call("ask", json!({})).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let next = again("ask", &got, &json!({}));
        got = client.ask("tools/call", next).await;
        assert_eq!(got.result()["resultType"], "input_required");
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    let late = again("ask", &got, &json!({"input-1": {}}));
    let late = client.ask("tools/call", late).await;
    assert_eq!(late.error(), (200, -32602));
}

#[tokio::test(start_paused = true)]
async fn calls_leave_no_tasks_behind() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    client.call("echo", json!({})).await.result();
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for _ in 0..50 {
        client.call("echo", json!({})).await.result();
        let asks = client.call("ask", json!({})).await;
        let done = again("ask", &asks, &json!({"input-1": {}}));
        client.ask("tools/call", done).await.result();
    }
    let after = metrics.num_alive_tasks();
    assert!(after <= before + 4, "{before} tasks became {after}");
    assert_eq!(servers.children("old"), 1);
}

#[tokio::test]
async fn close_cancels_calls_and_stops_processes() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let modern = servers.gateway();
    let client = Client::able(&modern, "old", able());
    let waiting = client.call("ask", json!({})).await;
    let other = Client::able(&modern, "old", json!({"roots": {}}));
    other.call("echo", json!({})).await.result();
    assert_eq!(servers.children("old"), 2);
    let hanging = Client::new(&modern, "old");
    let closing = async {
        servers
            .record("old")
            .wait("main tools/call \"hang\"", 1)
            .await;
        modern.close();
    };
    let (hung, ()) = tokio::join!(hanging.call("hang", json!({})), closing);
    assert_eq!(hung.error(), (200, -32603));
    let record = servers.record("old");
    record.wait("main notifications/cancelled", 1).await;
    record.wait("own notifications/cancelled", 1).await;
    for _ in 0..100 {
        if servers.children("old") == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(servers.children("old"), 0);
    let late = again("ask", &waiting, &json!({"input-1": {}}));
    assert_eq!(client.ask("tools/call", late).await.error(), (200, -32603));
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_response_of_the_client_process_comes_from_the_shared_one() {
    let servers = FakeServers::with(&[("old", Knows::Sessions)]);
    let client = Client::able(&servers.gateway(), "old", able());
    *servers.record("old").unanswered.lock().expect("lock") = Some(("own", "tools/list"));
    let got = client.ask("tools/list", json!({})).await;
    assert!(got.result()["tools"].is_array());
    assert_eq!(servers.record("old").heard("own tools/list").len(), 1);
    assert_eq!(servers.children("old"), 0, "that one is not used again");
}
