use http::StatusCode;
use serde_json::{Value, json};

use super::client::{Stream, request};
use super::*;

async fn set_level(client: &Client, level: &str) -> Value {
    let body = request(90, "logging/setLevel", json!({"level": level}));
    client.post(&body).await.json()
}

async fn subscribe(client: &Client, verb: &str, uri: &str) -> Value {
    let body = request(91, &format!("resources/{verb}"), json!({"uri": uri}));
    client.post(&body).await.json()
}

fn levels(messages: &[Value]) -> Vec<&str> {
    let levels = messages
        .iter()
        .filter_map(|one| one["params"]["level"].as_str());
    levels.collect()
}

#[tokio::test]
async fn each_client_hears_the_log_at_its_own_level() {
    let house = Small::with(&["one"]);
    let gateway = house.gateway();
    let loud = Client::begun(&gateway, "one", json!({})).await;
    let quiet = Client::begun(&gateway, "one", json!({})).await;
    assert_eq!(set_level(&loud, "debug").await["result"], json!({}));
    assert_eq!(set_level(&quiet, "error").await["result"], json!({}));
    assert_eq!(set_level(&quiet, "shouting").await["error"]["code"], -32602);
    let heard = house.facts("one").heard("logging/setLevel");
    assert_eq!(
        heard,
        ["logging/setLevel \"debug\""],
        "the most that anybody wants"
    );

    let got = loud.call(1, "log", json!({"who": "loud"})).await.messages();
    assert_eq!(levels(&got), ["debug", "info", "error"]);
    assert_eq!(
        got.last().map(|last| &last["id"]),
        Some(&json!(1)),
        "before the answer"
    );
    let got = quiet
        .call(1, "log", json!({"who": "quiet"}))
        .await
        .messages();
    assert_eq!(levels(&got), ["error"]);

    loud.delete().await;
    let heard = house.facts("one").wait("logging/setLevel", 2).await;
    assert_eq!(heard[1], "logging/setLevel \"error\"");
}

#[tokio::test]
async fn a_server_that_rests_hears_of_a_level_once_it_is_there() {
    let house = Small::with(&["one"]);
    let all = Client::begun(&house.gateway(), "_all", json!({})).await;
    assert_eq!(set_level(&all, "shouting").await["error"]["code"], -32602);
    assert_eq!(set_level(&all, "error").await["result"], json!({}));
    all.call(1, "one__echo", json!({})).await;
    let heard = house.facts("one").wait("logging/setLevel", 1).await;
    assert_eq!(heard, ["logging/setLevel \"error\""]);
}

#[tokio::test]
async fn subscriptions_are_each_clients_own_and_the_server_hears_of_each_once() {
    let house = Small::with(&["one"]);
    let gateway = house.gateway();
    let one = Client::begun(&gateway, "one", json!({})).await;
    let two = Client::begun(&gateway, "one", json!({})).await;
    let mut news_one = Stream::of(one.get(None).await);
    let mut news_two = Stream::of(two.get(None).await);
    for (client, uri) in [(&one, "x://a"), (&two, "x://a"), (&two, "x://b")] {
        assert_eq!(
            subscribe(client, "subscribe", uri).await["result"],
            json!({})
        );
    }
    let heard = house.facts("one").heard("resources/subscribe");
    assert_eq!(
        heard,
        [
            r#"resources/subscribe "x://a""#,
            r#"resources/subscribe "x://b""#
        ]
    );

    for uri in ["x://b", "x://a"] {
        one.call(1, "touch", json!({"uri": uri})).await;
    }
    let uri = |event: Option<(String, Value)>| event.map(|(_, said)| said["params"]["uri"].clone());
    assert_eq!(uri(news_one.next().await), Some(json!("x://a")));
    assert_eq!(uri(news_two.next().await), Some(json!("x://b")));
    assert_eq!(uri(news_two.next().await), Some(json!("x://a")));

    subscribe(&one, "unsubscribe", "x://a").await;
    assert!(
        house.facts("one").heard("resources/unsubscribe").is_empty(),
        "two still wants it"
    );
    drop(news_two);
    two.delete().await;
    let mut heard = house.facts("one").wait("resources/unsubscribe", 2).await;
    heard.sort();
    assert_eq!(
        heard,
        [
            r#"resources/unsubscribe "x://a""#,
            r#"resources/unsubscribe "x://b""#
        ]
    );
}

#[tokio::test]
async fn a_new_process_is_told_what_the_old_one_knew() {
    told_again(json!({})).await;
}

#[tokio::test]
async fn a_new_process_of_ones_own_is_told_what_the_old_one_knew() {
    told_again(json!({"roots": {}})).await;
}

async fn told_again(capabilities: Value) {
    let house = Small::with(&["one"]);
    let gateway = house.gateway();
    let client = Client::begun(&gateway, "one", capabilities).await;
    let mut news = Stream::of(client.get(None).await);
    set_level(&client, "warning").await;
    subscribe(&client, "subscribe", "x://a").await;
    subscribe(&client, "subscribe", "x://b").await;
    subscribe(&client, "unsubscribe", "x://b").await;
    client.call(1, "die", json!({})).await;
    client.call(2, "echo", json!({})).await;
    house.facts("one").wait("logging/setLevel", 2).await;
    let subscribed = house.facts("one").wait("resources/subscribe", 3).await;
    assert_eq!(subscribed[2..], [r#"resources/subscribe "x://a""#]);
    client.call(3, "touch", json!({"uri": "x://a"})).await;
    let said = news
        .next()
        .await
        .map(|(_, said)| said["params"]["uri"].clone());
    assert_eq!(said, Some(json!("x://a")));
}

#[tokio::test]
async fn all_servers_behind_one_address() {
    all_servers(json!({}), 1).await;
    // Its own process is told too: what this client's calls change there, no other process knows.
    all_servers(json!({"roots": {}}), 2).await;
}

async fn all_servers(capabilities: Value, told: usize) {
    let house = Small::with(&["one", "two"]);
    let gateway = house.gateway();
    let begun = Client::begun(&gateway, "one", json!({})).await;
    begun.call(1, "echo", json!({})).await;
    Client::begun(&gateway, "two", json!({})).await;
    let client = Client::begun(&gateway, "_all", capabilities).await;
    let got = client
        .post(&request(1, "tools/list", json!({})))
        .await
        .json();
    let tools = got["result"]["tools"].as_array().expect("tools").clone();
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["one__echo", "two__echo"]);
    let got = client.call(2, "two__echo", json!({"a": 1})).await;
    assert_eq!(got.status, StatusCode::OK);
    assert_eq!(got.json()["result"]["echo"], json!({"a": 1}));

    let mut news = Stream::of(client.get(None).await);
    let answer = subscribe(&client, "subscribe", "mcp://two/x://a").await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    assert_eq!(house.facts("two").heard("resources/subscribe").len(), told);
    client.call(3, "two__touch", json!({"uri": "x://a"})).await;
    let said = news
        .next()
        .await
        .map(|(_, said)| said["params"]["uri"].clone());
    assert_eq!(said, Some(json!("mcp://two/x://a")));
}

#[tokio::test]
async fn log_lines_of_one_clients_calls_reach_nobody_else() {
    let house = Small::with(&["one"]);
    let gateway = house.gateway();
    let mut clients = Vec::new();
    for name in ["ann", "bob"] {
        let mut client = Client::new(&gateway, "one");
        client.principal = Some(name.to_owned());
        client.initialize("2025-11-25", json!({})).await;
        set_level(&client, "debug").await;
        clients.push(client);
    }
    let [ann, bob] = &clients[..] else {
        panic!("two clients");
    };
    subscribe(ann, "subscribe", "x://a").await;
    let mut news = Stream::of(ann.get(None).await);
    // Until no line can be about a call of hers.
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    let heard = bob.call(1, "log", json!({"who": "bob"})).await.messages();
    assert_eq!(levels(&heard), ["debug", "info", "error"]);
    // Both have calls going on: then nobody can say whose a line is.
    let (waiting, log) = tokio::join!(
        ann.call(1, "echo", json!({"wait_ms": 500})),
        bob.call(2, "log", json!({"who": "bob"}))
    );
    assert!(levels(&waiting.messages()).is_empty(), "{}", waiting.text);
    assert_eq!(log.status, StatusCode::OK);
    bob.call(3, "touch", json!({"uri": "x://a"})).await;
    let (_, first) = news.next().await.expect("news");
    assert_eq!(
        first["method"], "notifications/resources/updated",
        "{first}"
    );
}
