//! Requests of legacy servers to modern clients.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::TestResponse;
use super::{Client, FakeServers, Versions};

fn all_capabilities() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn resume_params(tool: &str, got: &TestResponse, answers: &Value) -> Value {
    json!({"name": tool, "arguments": {}, "requestState": got.result()["requestState"], "inputResponses": answers})
}

#[tokio::test]
async fn a_server_request_becomes_an_input_required_result() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
    let first = client.call("ask", json!({})).await;
    assert_eq!(first.result()["resultType"], "input_required");
    let input_requests = &first.result()["inputRequests"];
    assert_eq!(input_requests["input-1"]["method"], "elicitation/create");
    assert_eq!(input_requests["input-1"]["params"]["message"], "why?");
    let answer = json!({"action": "accept", "content": {"why": "so"}});
    let answers = json!({"input-1": answer, "what is this": {}});
    let second = client
        .ask("tools/call", resume_params("ask", &first, &answers))
        .await;
    assert_eq!(second.result()["answers"], json!([answer]));
    assert_eq!(second.result()["resultType"], "complete");
    let initialized = servers.record("old").received("own initialize");
    assert_eq!(initialized.len(), 1);
    assert!(initialized[0].contains("sampling"), "{initialized:?}");
    client.call("echo", json!({})).await.result();
    assert_eq!(
        servers.record("old").received("own initialize").len(),
        1,
        "the process is kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_with_constant_notifications_can_send_requests() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    servers
        .record("old")
        .is_chatty
        .store(true, Ordering::SeqCst);
    let modern = servers.gateway();
    let client = Client::with_capabilities(&modern, "old", all_capabilities());
    client.call("echo", json!({})).await.result();
    let first = client.call("ask", json!({})).await;
    assert_eq!(first.result()["resultType"], "input_required");
    let answers = json!({"input-1": {"action": "accept"}});
    let second = client
        .ask("tools/call", resume_params("ask", &first, &answers))
        .await;
    assert_eq!(second.result()["answers"], json!([{"action": "accept"}]));
}

#[tokio::test]
async fn several_server_requests_reach_the_client_together_or_in_turn() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
    let both = client.call("ask_both", json!({})).await;
    let input_requests = both.result()["inputRequests"]
        .as_object()
        .expect("questions")
        .clone();
    assert_eq!(input_requests.len(), 2);
    let answers: Value = input_requests
        .keys()
        .map(|key| (key.clone(), json!({"to": key})))
        .collect();
    let done = client
        .ask("tools/call", resume_params("ask_both", &both, &answers))
        .await;
    assert_eq!(
        done.result()["answers"].as_array().expect("answers").len(),
        2
    );
    let first = client.call("ask_on", json!({})).await;
    let second = client
        .ask(
            "tools/call",
            resume_params("ask_on", &first, &json!({"input-1": {"n": 1}})),
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
            resume_params("ask_on", &second, &json!({"input-2": {"n": 2}})),
        )
        .await;
    assert_eq!(done.result()["answers"], json!([{"n": 1}, {"n": 2}]));
}

#[tokio::test]
async fn open_requests_are_repeated() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
    let first = client.call("ask", json!({})).await;
    let repeated = client
        .ask(
            "tools/call",
            resume_params("ask", &first, &json!({"other": {}})),
        )
        .await;
    assert_eq!(repeated.result()["resultType"], "input_required");
    assert!(repeated.result()["inputRequests"].get("input-1").is_some());
    let wrong = client
        .ask(
            "tools/call",
            resume_params("ask", &repeated, &json!({"input-1": 5})),
        )
        .await;
    assert_eq!(wrong.error(), (200, -32602));
    let done = client
        .ask(
            "tools/call",
            resume_params("ask", &repeated, &json!({"input-1": {"a": 1}})),
        )
        .await;
    assert_eq!(done.result()["answers"], json!([{"a": 1}]));
}

#[tokio::test]
async fn a_suspended_call_is_resumed_once_and_only_by_its_client() {
    let servers = FakeServers::with(&[("old", Versions::Legacy), ("other", Versions::Legacy)]);
    let modern = servers.gateway();
    let client = Client::with_capabilities(&modern, "old", all_capabilities());
    let first = client.call("ask", json!({})).await;
    let answers = json!({"input-1": {"a": 1}});
    let mut stranger = Client::with_capabilities(&modern, "old", all_capabilities());
    stranger.principal = Some("bob".to_owned());
    let elsewhere = Client::with_capabilities(&modern, "other", all_capabilities());
    for thief in [&stranger, &elsewhere] {
        let got = thief
            .ask("tools/call", resume_params("ask", &first, &answers))
            .await;
        assert_eq!(got.error(), (200, -32602));
    }
    let mut changed = resume_params("ask", &first, &answers);
    changed["arguments"] = json!({"another": true});
    assert_eq!(
        client.ask("tools/call", changed).await.error(),
        (200, -32602)
    );
    let mut tampered = resume_params("ask", &first, &answers);
    tampered["requestState"] = json!("0123456789abcdef0123456789abcdef");
    assert_eq!(
        client.ask("tools/call", tampered).await.error(),
        (200, -32602)
    );
    let done = client
        .ask("tools/call", resume_params("ask", &first, &answers))
        .await;
    assert_eq!(done.result()["answers"], json!([{"a": 1}]));
    let twice = client
        .ask("tools/call", resume_params("ask", &first, &answers))
        .await;
    assert_eq!(twice.error(), (200, -32602));
}

#[tokio::test]
async fn a_call_without_input_of_the_client_is_cancelled() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
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
        .ask(
            "tools/call",
            resume_params("ask", &first, &json!({"input-1": {}})),
        )
        .await;
    assert_eq!(late.error(), (200, -32602));
}

#[tokio::test]
async fn server_requests_do_not_reach_clients_without_capabilities() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
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
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
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
                resume_params("ask", first, &json!({"input-1": {"a": 1}})),
            )
            .await;
        assert_eq!(done.result()["answers"], json!([{"a": 1}]));
    }
}

#[tokio::test]
async fn an_idle_process_is_stopped_for_another_client_at_the_limit() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let modern = servers.gateway();
    for who in ["ann", "bob", "eve", "joe"] {
        let mut client = Client::with_capabilities(&modern, "old", all_capabilities());
        client.principal = Some(who.to_owned());
        assert_eq!(
            client.call("echo", json!({})).await.result()["by"],
            "own",
            "{who}"
        );
    }
    assert_eq!(servers.children("old"), 3);
    assert_eq!(servers.record("old").received("own initialize").len(), 4);
}

#[tokio::test]
async fn progress_has_the_token_of_the_current_request() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let mut client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
    client.meta = json!({"progressToken": "first"});
    let first = client.call("ask_and_tell", json!({})).await;
    client.meta = json!({"progressToken": "second"});
    let answers = json!({"input-1": {"action": "accept"}});
    let done = client
        .ask(
            "tools/call",
            resume_params("ask_and_tell", &first, &answers),
        )
        .await;
    assert_eq!(done.messages.len(), 2, "{:?}", done.messages);
    assert_eq!(done.messages[0]["params"]["progressToken"], "second");
}

#[tokio::test]
async fn a_client_with_capabilities_gets_lists_from_its_own_process() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let modern = servers.gateway();
    let client = Client::with_capabilities(&modern, "old", all_capabilities());
    let listed = client.ask("tools/list", json!({})).await;
    assert_eq!(listed.result()["resultType"], "complete");
    assert_eq!(servers.record("old").received("own tools/list").len(), 1);
    client.call("echo", json!({})).await.result();
    assert_eq!(servers.children("old"), 1);
    Client::with_capabilities(&modern, "_all", all_capabilities())
        .ask("tools/list", json!({}))
        .await;
    assert_eq!(
        servers.record("old").received("own tools/list").len(),
        1,
        "not for each server"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_extended_without_input() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
    let mut got = client.call("ask", json!({})).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let next = resume_params("ask", &got, &json!({}));
        got = client.ask("tools/call", next).await;
        assert_eq!(got.result()["resultType"], "input_required");
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    let late = resume_params("ask", &got, &json!({"input-1": {}}));
    let late = client.ask("tools/call", late).await;
    assert_eq!(late.error(), (200, -32602));
}

#[tokio::test(start_paused = true)]
async fn calls_leave_no_tasks_behind() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
    client.call("echo", json!({})).await.result();
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for _ in 0..50 {
        client.call("echo", json!({})).await.result();
        let asks = client.call("ask", json!({})).await;
        let done = resume_params("ask", &asks, &json!({"input-1": {}}));
        client.ask("tools/call", done).await.result();
    }
    let after = metrics.num_alive_tasks();
    assert!(after <= before + 4, "{before} tasks became {after}");
    assert_eq!(servers.children("old"), 1);
}

#[tokio::test]
async fn close_cancels_calls_and_stops_processes() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let modern = servers.gateway();
    let client = Client::with_capabilities(&modern, "old", all_capabilities());
    let waiting = client.call("ask", json!({})).await;
    let other = Client::with_capabilities(&modern, "old", json!({"roots": {}}));
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
    let late = resume_params("ask", &waiting, &json!({"input-1": {}}));
    assert_eq!(client.ask("tools/call", late).await.error(), (200, -32603));
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_response_of_the_client_process_comes_from_the_shared_one() {
    let servers = FakeServers::with(&[("old", Versions::Legacy)]);
    let client = Client::with_capabilities(&servers.gateway(), "old", all_capabilities());
    *servers.record("old").unanswered.lock().expect("lock") = Some(("own", "tools/list"));
    let got = client.ask("tools/list", json!({})).await;
    assert!(got.result()["tools"].is_array());
    assert_eq!(servers.record("old").received("own tools/list").len(), 1);
    assert_eq!(servers.children("old"), 0, "that one is not used again");
}
