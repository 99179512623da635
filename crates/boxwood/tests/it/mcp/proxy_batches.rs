//! Several messages on one line of `boxwood mcp proxy`, as the revision 2025-03-26 has them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::proxy::{Proxy, accepted, greets, method};
use crate::support::scripted_daemon::{Asked, Says, Scripted, events, says};

const TWO: &str = r#"[{"id":1,"method":"a"},{"method":"notifications/n"},{"id":2,"method":"b"}]"#;

/// A gateway that answers batches so, and has no stream of its own.
fn daemon(answer: impl Fn(&Asked) -> Says + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |asked| match asked.method.as_str() {
        "GET" => says(405, "application/json", ""),
        "POST" if asked.json().is_array() => answer(asked),
        _ if method(asked) == "initialize" => greets("s-1"),
        _ => accepted(),
    })
}

fn begun(daemon: &Scripted) -> Proxy {
    let mut proxy = Proxy::start(daemon);
    proxy.begin();
    proxy
}

#[test]
fn a_batch_is_over_when_each_request_in_it_is_answered() {
    let streamed = "id: 1-1\ndata: {\"id\":2,\"result\":{}}\n\n\
                    id: 1-2\ndata: {\"method\":\"notifications/progress\"}\n\n\
                    id: 1-3\ndata: {\"id\":1,\"result\":{}}\n\n";
    let expected = [
        r#"{"id":2,"result":{}}"#,
        r#"{"method":"notifications/progress"}"#,
        r#"{"id":1,"result":{}}"#,
    ];
    // Whether or not the stream ends with them.
    for says in [events(streamed), events(streamed).open()] {
        let daemon = daemon(move |_| says.clone());
        let mut proxy = begun(&daemon);
        proxy.send(TWO);
        let since = Instant::now();
        assert_eq!(proxy.rest(), expected);
        // What is under way is waited for longer than that.
        assert!(
            since.elapsed() < Duration::from_secs(8),
            "{:?}",
            since.elapsed()
        );
    }
}

#[test]
fn batches_are_waited_for_side_by_side() {
    let daemon = daemon(|asked| {
        let id = &asked.json()[0]["id"];
        if *id == json!(1) {
            // Where nothing is known to be under way, last lines are not waited for that long.
            std::thread::sleep(Duration::from_secs(5));
        }
        says(200, "application/json", json!([{"id": id}]).to_string())
    });
    let mut proxy = begun(&daemon);
    proxy.send(r#"[{"id":1,"method":"slow"}]"#);
    proxy.send(r#"[{"id":2,"method":"quick"}]"#);
    assert_eq!(proxy.line(), r#"[{"id":2}]"#);
    assert_eq!(proxy.rest(), [r#"[{"id":1}]"#]);
}

#[test]
fn what_is_lost_of_a_batch_is_told_to_each_request() {
    let daemon = daemon(|_| events("data: {\"id\":1,\"result\":{}}\n\n").cut());
    let mut proxy = begun(&daemon);
    proxy.send(TWO);
    assert_eq!(proxy.line(), r#"{"id":1,"result":{}}"#);
    let rest = proxy.rest();
    let lost: Vec<Value> = rest
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(
        (&lost[0]["id"], &lost[0]["error"]["code"]),
        (&json!(2), &json!(-32000))
    );
}

#[test]
fn what_is_cancelled_of_a_batch_is_not_waited_for() {
    let daemon = daemon(|_| events("data: {\"id\":1,\"result\":{}}\n\n").open());
    let mut proxy = begun(&daemon);
    proxy.send(TWO);
    assert_eq!(proxy.line(), r#"{"id":1,"result":{}}"#);
    proxy.send(r#"{"method":"notifications/cancelled","params":{"requestId":2}}"#);
    let since = Instant::now();
    assert_eq!(proxy.rest(), [""; 0]);
    assert!(
        since.elapsed() < Duration::from_secs(8),
        "{:?}",
        since.elapsed()
    );
    let told = daemon
        .heard()
        .iter()
        .any(|asked| method(asked) == "notifications/cancelled");
    assert!(told, "the gateway has to know");
}

#[test]
fn a_batch_that_asks_nothing_gets_no_answer() {
    let daemon = daemon(|_| accepted());
    let mut proxy = begun(&daemon);
    proxy.send(r#"[{"method":"notifications/n"},{"id":7,"result":{}}]"#);
    assert_eq!(proxy.rest(), [""; 0]);
    let heard = daemon.heard();
    let batches = heard.iter().filter(|asked| asked.json().is_array());
    assert_eq!(batches.count(), 1);
}
