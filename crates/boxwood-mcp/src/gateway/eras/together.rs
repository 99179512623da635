//! All servers as one, for clients of either era.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::Stream;
use super::{Client, Knows, Village};
use crate::gateway::Target;
use crate::gateway::aggregate::UNAVAILABLE;
use crate::gateway::json::raw;
use crate::gateway::upstream::Upstream;
use crate::wire::{Ask, Message};

fn village() -> Arc<Village> {
    Village::with(&[
        ("a", Knows::Both),
        ("b.c", Knows::Sessions),
        ("n", Knows::Stateless),
    ])
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let items = list.as_array().expect("a list");
    items
        .iter()
        .map(|item| item[key].as_str().expect("text").to_owned())
        .collect()
}

#[tokio::test]
async fn every_thing_of_every_server_is_there_once() {
    let village = village();
    let all = Client::new(&village.modern(), "_all");
    let tools = all.ask("tools/list", json!({})).await;
    let tools = names(&tools.result()["tools"], "name");
    assert_eq!(tools.len(), 9, "{tools:?}");
    assert!(
        tools.contains(&"a__hang".to_owned()),
        "the second page too: {tools:?}"
    );
    let odd = tools
        .iter()
        .find(|name| name.starts_with("b-c-x"))
        .expect("a shortened name");
    for tool in &tools {
        let got = all
            .ask("tools/call", json!({"name": tool, "arguments": {}}))
            .await;
        if !tool.ends_with("hang") {
            assert!(got.result().get("said").is_some(), "{tool}");
        }
        if tool.ends_with("region") {
            break;
        }
    }
    let got = all
        .ask(
            "tools/call",
            json!({"name": odd.replace("region", "echo"), "arguments": {"x": 1}}),
        )
        .await;
    assert_eq!(got.result()["said"], json!({"x": 1}));
    let resources = all.ask("resources/list", json!({})).await;
    let uris = names(&resources.result()["resources"], "uri");
    assert_eq!(
        uris,
        ["mcp://a/memo:one", "mcp://b.c/memo:one", "mcp://n/memo:one"]
    );
    let templates = all.ask("resources/templates/list", json!({})).await;
    let templates = names(&templates.result()["resourceTemplates"], "uriTemplate");
    assert_eq!(templates[1], "mcp://b.c/memo:{id}");
    for uri in uris {
        let read = all.ask("resources/read", json!({"uri": uri})).await;
        assert_eq!(read.result()["contents"][0]["uri"], uri);
        assert_eq!(read.result()["contents"][0]["text"], "hello");
    }
    let prompts = all.ask("prompts/list", json!({})).await;
    for prompt in names(&prompts.result()["prompts"], "name") {
        let got = all.ask("prompts/get", json!({"name": prompt})).await;
        assert_eq!(got.result()["prompt"], "greet", "{prompt}");
    }
    assert_eq!(prompts.result()["resultType"], "complete");
    assert!(prompts.result()["ttlMs"].is_u64());
}

#[tokio::test]
async fn names_that_lead_nowhere_are_refused() {
    let village = village();
    let all = Client::new(&village.modern(), "_all");
    for tool in ["echo", "zzz__echo", "a__secret", "__echo", ""] {
        assert_eq!(
            all.call(tool, json!({})).await.error(),
            (200, -32602),
            "{tool}"
        );
    }
    for uri in ["memo:one", "mcp://zzz/memo:one", "mcp://a/"] {
        let got = all.ask("resources/read", json!({"uri": uri})).await;
        assert_eq!(got.error(), (200, -32602), "{uri}");
    }
    let page = all.ask("tools/list", json!({"cursor": "2"})).await;
    assert_eq!(page.error(), (200, -32602));
    assert_eq!(
        all.ask("unknown/method", json!({})).await.error(),
        (404, -32601)
    );
}

#[tokio::test]
async fn a_name_too_long_for_clients_still_leads_to_its_tool() {
    for (knows, process) in [
        (Knows::Sessions, "main"),
        (Knows::Stateless, "main"),
        (Knows::Both, "modern"),
    ] {
        let village = Village::with(&[("a", knows)]);
        let long = "x".repeat(100);
        let odd = json!({"name": long, "inputSchema": {}});
        let facts = village.facts("a");
        facts.more_tools.lock().expect("lock").push(odd);
        let mut all = Client::new(&village.modern(), "_all");
        all.meta = json!({"progressToken": 1});
        let tools = all.ask("tools/list", json!({})).await;
        let tools = names(&tools.result()["tools"], "name");
        let shown = tools.iter().find(|name| name.starts_with("a__xxx"));
        let shown = shown.expect("it is there");
        assert_eq!(shown.len(), 64);
        let called = all.call(shown, json!({})).await;
        assert!(called.result().get("said").is_some(), "{knows:?}");
        let heard = facts.heard(&format!("{process} tools/call"));
        assert_eq!(heard, [format!("{process} tools/call \"{long}\"")]);
    }
}

#[tokio::test]
async fn completion_finds_the_server_of_its_prompt_or_resource() {
    let village = village();
    let all = Client::new(&village.modern(), "_all");
    let of = json!({"ref": {"type": "ref/resource", "uri": "mcp://a/memo:{id}"}, "argument": {}});
    let got = all.ask("completion/complete", of).await;
    let said = got.result()["completion"]["values"][0]
        .as_str()
        .expect("text");
    assert!(said.contains("\"memo:{id}\""), "{said}");
    let of = json!({"ref": {"type": "ref/prompt", "name": "a__greet"}, "argument": {}});
    let got = all.ask("completion/complete", of).await;
    let said = got.result()["completion"]["values"][0]
        .as_str()
        .expect("text");
    assert!(said.contains("\"greet\""), "{said}");
}

#[tokio::test]
async fn a_dead_server_spoils_no_list() {
    let village = village();
    village.end("a", true);
    let all = Client::new(&village.modern(), "_all");
    let got = all.ask("tools/list", json!({})).await;
    let tools = names(&got.result()["tools"], "name");
    assert_eq!(tools.len(), 6, "{tools:?}");
    let missing = &got.result()["_meta"][UNAVAILABLE];
    assert_eq!(
        missing,
        &json!([{"server": "a", "message": "it said nothing"}])
    );
    let called = all.call("a__echo", json!({})).await;
    assert_eq!(called.error(), (200, -32603));
    assert_eq!(called.last()["error"]["data"]["phase"], "mcp_init");
}

#[tokio::test]
async fn questions_of_one_server_reach_the_client_of_all() {
    let village = village();
    let all = Client::able(&village.modern(), "_all", json!({"elicitation": {}}));
    let tools = all.ask("tools/list", json!({})).await;
    let tools = names(&tools.result()["tools"], "name");
    let ask = tools
        .iter()
        .find(|name| name.starts_with("b-c-x"))
        .expect("a shortened name");
    let (server, _) = ask.split_once("__").expect("two parts");
    let name = format!("{server}__ask");
    let first = all.call(&name, json!({})).await;
    let state = &first.result()["requestState"];
    let again = json!({"name": name, "arguments": {}, "requestState": state, "inputResponses": {"input-1": {"a": 1}}});
    let done = all.ask("tools/call", again).await;
    assert_eq!(done.result()["answers"], json!([{"a": 1}]));
}

#[tokio::test]
async fn clients_with_sessions_see_all_servers_too() {
    let village = village();
    let all = Upstream::find(&village.all(), &Target::All)
        .await
        .expect("all servers");
    let ask = async |method: &str, params: Value| {
        let request = Message::request(raw(&1), method, Some(raw(&params)));
        let answer = all.request(request, Ask::default()).await;
        let answer = answer.expect("an answer");
        serde_json::from_str::<Value>(answer.outcome().map_or("null", RawValue::get)).expect("JSON")
    };
    let tools = ask("tools/list", json!({})).await;
    assert_eq!(names(&tools["tools"], "name").len(), 9);
    for server in ["a", "n"] {
        let called = ask(
            "tools/call",
            json!({"name": format!("{server}__echo"), "arguments": {"z": 1}}),
        )
        .await;
        assert_eq!(called["said"], json!({"z": 1}), "{server}");
        assert_eq!(called["by"], "main", "{server}");
    }
    let greeting: Value = serde_json::from_str(all.greeting().get()).expect("JSON");
    assert_eq!(greeting["serverInfo"]["name"], "boxwood");
    assert_eq!(greeting["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn every_server_may_ask_a_client_of_all_that_has_a_session() {
    let village = Village::with(&[
        ("a", Knows::Sessions),
        ("b", Knows::Sessions),
        ("n", Knows::Stateless),
    ]);
    let initialize = raw(
        &json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "0"}}),
    );
    let (all, mut asked) = Upstream::company(&village.all(), &initialize);
    let ask = async |server: &str| {
        let params = raw(&json!({"name": format!("{server}__ask"), "arguments": {}}));
        let request = Message::request(raw(&server), "tools/call", Some(params));
        let answer = all
            .request(request, Ask::default())
            .await
            .expect("an answer");
        serde_json::from_str::<Value>(answer.outcome().map_or("null", RawValue::get)).expect("JSON")
    };
    let answering = all.clone();
    let client = async move {
        let mut seen = Vec::new();
        for _ in 0..3 {
            let question = asked.recv().await.expect("a question");
            assert_eq!(question.method(), Some("elicitation/create"));
            let id = question.id().expect("an id").to_owned();
            assert!(!seen.contains(&id.get().to_owned()), "two servers, one id");
            seen.push(id.get().to_owned());
            let answer = Message::result(id, raw(&json!({"action": "accept"})));
            answering.respond(answer).await.expect("somebody waits");
        }
    };
    let (a, b, n, ()) = tokio::join!(ask("a"), ask("b"), ask("n"), client);
    assert_eq!(a["answers"], json!([{"action": "accept"}]));
    assert_eq!(b["answers"], json!([{"action": "accept"}]));
    assert_eq!(n["answers"], json!({"q": {"action": "accept"}}));
    assert_eq!(village.children("a") + village.children("b"), 2);
    drop(all);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(
        village.children("a") + village.children("b"),
        0,
        "they go with their client"
    );
}

fn able() -> Box<RawValue> {
    raw(
        &json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "0"}}),
    )
}

fn call(tool: &str) -> Message {
    let params = raw(&json!({"name": tool, "arguments": {}}));
    Message::request(raw(&1), "tools/call", Some(params))
}

#[tokio::test]
async fn a_server_that_is_slow_holds_no_other_up() {
    let village = Village::with(&[("a", Knows::Sessions), ("b", Knows::Sessions)]);
    village.home("a").is_slow.store(true, Ordering::SeqCst);
    let (all, _asked) = Upstream::company(&village.all(), &able());
    let slow = all.clone();
    let slow = tokio::spawn(async move { slow.request(call("a__echo"), Ask::default()).await });
    village.facts("a").wait("main initialize", 1).await;
    let others = async {
        let answer = all.request(call("b__echo"), Ask::default()).await;
        assert!(answer.expect("an answer").outcome().is_some());
        all.set_level("error").await;
        all.subscribe("mcp://b/memo:one", true).await;
        let changed = Message::notification("notifications/roots/list_changed", None);
        all.tell(&changed).await;
    };
    let others = tokio::time::timeout(std::time::Duration::from_secs(5), others).await;
    others.expect("nobody waits for the slow one");
    village.facts("b").wait("own logging/setLevel", 1).await;
    village.facts("b").wait("own resources/subscribe", 1).await;
    village.facts("b").wait("own notifications/roots", 1).await;
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_is_taken_back() {
    let village = Village::with(&[("a", Knows::Sessions), ("n", Knows::Stateless)]);
    let (all, mut asked) = Upstream::company(&village.all(), &able());
    for tool in ["a__ask", "n__ask"] {
        let asking = call(tool);
        let client = async {
            let question = asked.recv().await.expect("a question");
            let taken_back = asked.recv().await.expect("a word more");
            assert_eq!(taken_back.method(), Some("notifications/cancelled"));
            let params = taken_back.params().map_or("", RawValue::get);
            let id = question.id().expect("an id").get();
            assert!(params.contains(id), "{params}");
        };
        let (answer, ()) = tokio::join!(all.request(asking, Ask::default()), client);
        let refused = answer.map(|answer| String::from_utf8_lossy(&answer.json()).into_owned());
        let refused = refused.unwrap_or_else(|refusal| refusal.message);
        assert!(refused.contains("did not answer"), "{refused}");
    }
}

#[tokio::test]
async fn a_server_that_rests_is_listed_and_not_woken() {
    let village = Village::with(&[("a", Knows::Sessions), ("b", Knows::Sessions)]);
    let modern = village.modern();
    let all = Client::new(&modern, "_all");
    let lists = async || {
        let tools = all.ask("tools/list", json!({})).await;
        for method in ["prompts/list", "resources/list"] {
            all.ask(method, json!({})).await.result();
        }
        names(&tools.result()["tools"], "name").len()
    };
    assert_eq!(lists().await, 6);
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut news = Stream::of(all.send("subscriptions/listen", wanted).await);
    news.next().await.expect("an acknowledgement");

    village.end("a", false);
    assert_eq!(lists().await, 6, "as it listed them before");
    assert_eq!(village.facts("a").heard("main initialize").len(), 1);
    let quiet = std::time::Duration::from_secs(1);
    let heard = tokio::time::timeout(quiet, news.next()).await;
    assert!(heard.is_err(), "that it sleeps is no news: {heard:?}");

    all.call("a__echo", json!({})).await.result();
    assert_eq!(village.facts("a").heard("main initialize").len(), 2);
    let heard = tokio::time::timeout(quiet, news.next()).await;
    assert!(heard.is_err(), "nor that it woke: {heard:?}");

    village.end("a", true);
    let heard = news.next().await.expect("news");
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert_eq!(lists().await, 3, "one that is gone is not listed");
}

#[tokio::test]
async fn what_a_server_asked_before_it_ended_is_taken_back() {
    let village = Village::with(&[("n", Knows::Stateless)]);
    let (all, mut asked) = Upstream::company(&village.all(), &able());
    let asking = all.clone();
    let asking = tokio::spawn(async move { asking.request(call("n__ask"), Ask::default()).await });
    let question = asked.recv().await.expect("a question");
    let id = question.id().expect("an id").get().to_owned();
    village.end("n", false);
    let answer = all.request(call("n__echo"), Ask::default()).await;
    assert!(answer.expect("an answer").outcome().is_some());
    let patience = std::time::Duration::from_secs(5);
    let taken_back = tokio::time::timeout(patience, asked.recv()).await;
    let taken_back = taken_back.expect("in time").expect("a word more");
    assert_eq!(taken_back.method(), Some("notifications/cancelled"));
    let params = taken_back.params().map_or("", RawValue::get);
    assert!(params.contains(&id), "{params}");
    let first = tokio::time::timeout(patience, asking).await;
    let first = first.expect("it ends").expect("no panic");
    assert!(first.is_err(), "its server is gone");
}

#[tokio::test(start_paused = true)]
async fn wishes_outlive_the_call_that_started_the_process() {
    let village = Village::with(&[("a", Knows::Sessions)]);
    let facts = village.facts("a");
    *facts.unanswered.lock().expect("lock") = Some(("own", "logging/setLevel"));
    let (all, _asked) = Upstream::company(&village.all(), &able());
    all.set_level("error").await;
    for uri in ["mcp://a/memo:one", "mcp://a/memo:two"] {
        all.subscribe(uri, true).await;
    }
    let first = call("a__echo");
    let first = all.request(first, Ask::default());
    let first = tokio::time::timeout(std::time::Duration::from_secs(1), first).await;
    assert!(first.is_err(), "the client leaves before its call is made");
    assert!(facts.heard("own resources/subscribe").is_empty());
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    facts.wait("own resources/subscribe", 2).await;
}
