//! Modern clients of all servers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::Stream;
use super::{Client, FakeServers, Versions};
use crate::gateway::aggregate::UNAVAILABLE;

fn servers() -> Arc<FakeServers> {
    FakeServers::with(&[
        ("a", Versions::Both),
        ("b.c", Versions::Legacy),
        ("n", Versions::Modern),
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
async fn the_lists_of_all_servers_are_merged() {
    let servers = servers();
    let all = Client::new(&servers.gateway(), "_all");
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
            assert!(got.result().get("arguments").is_some(), "{tool}");
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
    assert_eq!(got.result()["arguments"], json!({"x": 1}));
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
async fn unknown_names_are_refused() {
    let servers = servers();
    let all = Client::new(&servers.gateway(), "_all");
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
    for (versions, process) in [
        (Versions::Legacy, "main"),
        (Versions::Modern, "main"),
        (Versions::Both, "modern"),
    ] {
        let servers = FakeServers::with(&[("a", versions)]);
        let long = "x".repeat(100);
        let odd = json!({"name": long, "inputSchema": {}});
        let record = servers.record("a");
        record.more_tools.lock().expect("lock").push(odd);
        let mut all = Client::new(&servers.gateway(), "_all");
        all.meta = json!({"progressToken": 1});
        let tools = all.ask("tools/list", json!({})).await;
        let tools = names(&tools.result()["tools"], "name");
        let shown = tools.iter().find(|name| name.starts_with("a__xxx"));
        let shown = shown.expect("it is there");
        assert_eq!(shown.len(), 64);
        let called = all.call(shown, json!({})).await;
        assert!(called.result().get("arguments").is_some(), "{versions:?}");
        let received = record.received(&format!("{process} tools/call"));
        assert_eq!(received, [format!("{process} tools/call \"{long}\"")]);
    }
}

#[tokio::test]
async fn completion_finds_the_server_of_its_prompt_or_resource() {
    let servers = servers();
    let all = Client::new(&servers.gateway(), "_all");
    let of = json!({"ref": {"type": "ref/resource", "uri": "mcp://a/memo:{id}"}, "argument": {}});
    let got = all.ask("completion/complete", of).await;
    let value = got.result()["completion"]["values"][0]
        .as_str()
        .expect("text");
    assert!(value.contains("\"memo:{id}\""), "{value}");
    let of = json!({"ref": {"type": "ref/prompt", "name": "a__greet"}, "argument": {}});
    let got = all.ask("completion/complete", of).await;
    let value = got.result()["completion"]["values"][0]
        .as_str()
        .expect("text");
    assert!(value.contains("\"greet\""), "{value}");
}

#[tokio::test]
async fn a_failed_server_is_reported_in_the_list() {
    let servers = servers();
    servers.end("a", true);
    let all = Client::new(&servers.gateway(), "_all");
    let got = all.ask("tools/list", json!({})).await;
    let tools = names(&got.result()["tools"], "name");
    assert_eq!(tools.len(), 6, "{tools:?}");
    let missing = &got.result()["_meta"][UNAVAILABLE];
    assert_eq!(missing, &json!([{"server": "a", "message": "no response"}]));
    let called = all.call("a__echo", json!({})).await;
    assert_eq!(called.error(), (200, -32603));
    assert_eq!(called.last()["error"]["data"]["phase"], "mcp_init");
}

#[tokio::test]
async fn server_requests_reach_a_client_of_all_servers() {
    let servers = servers();
    let all = Client::with_capabilities(&servers.gateway(), "_all", json!({"elicitation": {}}));
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
    let params = json!({"name": name, "arguments": {}, "requestState": state, "inputResponses": {"input-1": {"a": 1}}});
    let done = all.ask("tools/call", params).await;
    assert_eq!(done.result()["answers"], json!([{"a": 1}]));
}

#[tokio::test]
async fn an_idle_server_is_listed_without_a_start() {
    let servers = FakeServers::with(&[("a", Versions::Legacy), ("b", Versions::Legacy)]);
    let modern = servers.gateway();
    let all = Client::new(&modern, "_all");
    let lists = async || {
        let tools = all.ask("tools/list", json!({})).await;
        for method in ["prompts/list", "resources/list"] {
            all.ask(method, json!({})).await.result();
        }
        names(&tools.result()["tools"], "name").len()
    };
    assert_eq!(lists().await, 6);
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut news = Stream::of(all.send("subscriptions/listen", params).await);
    news.next().await.expect("an acknowledgement");

    servers.end("a", false);
    assert_eq!(lists().await, 6, "as it listed them before");
    assert_eq!(servers.record("a").received("main initialize").len(), 1);
    let quiet = std::time::Duration::from_secs(1);
    let notification = tokio::time::timeout(quiet, news.next()).await;
    assert!(
        notification.is_err(),
        "idle stop reported: {notification:?}"
    );

    all.call("a__echo", json!({})).await.result();
    assert_eq!(servers.record("a").received("main initialize").len(), 2);
    let notification = tokio::time::timeout(quiet, news.next()).await;
    assert!(notification.is_err(), "restart reported: {notification:?}");

    servers.end("a", true);
    let notification = news.next().await.expect("news");
    assert_eq!(notification["method"], "notifications/tools/list_changed");
    assert_eq!(lists().await, 3, "one that is gone is not listed");
}
