//! `boxwood mcp proxy`: a client on stdin, a gateway behind HTTP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::command::boxwood;
use crate::support::scripted_daemon::{
    ReceivedRequest, Scripted, ScriptedResponse, events, json as answer, response,
};

struct Proxy {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Proxy {
    fn start(daemon: &Scripted) -> Self {
        let mut child = boxwood()
            .args(["mcp", "proxy", "time", "--url", &daemon.url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("stdout"));
        Self {
            child,
            input,
            output,
        }
    }

    fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{line}").expect("write");
        input.flush().expect("flushed");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("read");
        line.trim_end_matches('\n').to_owned()
    }

    fn begin(&mut self) {
        self.send(INITIALIZE);
        assert_eq!(self.line(), GREETING);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Closes stdin and returns the remaining output.
    fn rest(mut self) -> Vec<String> {
        drop(self.input.take());
        let mut rest = Vec::new();
        loop {
            match self.line() {
                line if line.is_empty() => break,
                line => rest.push(line),
            }
        }
        self.end();
        rest
    }

    fn end(mut self) {
        drop(self.input.take());
        let status = self.child.wait().expect("end");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const GREETING: &str =
    r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","extra":1.50}}"#;

fn greets(session: &str) -> ScriptedResponse {
    response(200, "application/json", GREETING).header("mcp-session-id", session)
}

fn accepted() -> ScriptedResponse {
    response(202, "application/json", "")
}

fn method(request: &ReceivedRequest) -> String {
    request.json()["method"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn messages_pass_unchanged_and_the_session_is_deleted_at_the_end() {
    let daemon = Scripted::start(|request| match request.method.as_str() {
        "GET" => {
            events("id: 1\ndata: {\"method\":\"notifications/tools/list_changed\"}\n\n").open()
        }
        "DELETE" => response(200, "application/json", ""),
        _ => match method(request).as_str() {
            "initialize" => greets("s-1"),
            "tools/list" => response(
                200,
                "application/json",
                "{\"id\":1,\n \"result\":{\"n\":1.0,\"n2\":1e2}}",
            ),
            "tools/call" => events(
                ": hello\n\ndata: {\"method\":\"notifications/progress\",\"params\":{\"x\":1.10}}\n\n\
                 data: {\"id\":\"a\",\ndata:  \"result\":{\"unknown\":[0.10]}}\n\n",
            ),
            _ => accepted(),
        },
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.begin();
    assert_eq!(
        proxy.line(),
        r#"{"method":"notifications/tools/list_changed"}"#
    );
    proxy.send(r#"{"id":1,"method":"tools/list","unknown":{"kept": true}}"#);
    assert_eq!(proxy.line(), r#"{"id":1,  "result":{"n":1.0,"n2":1e2}}"#);
    proxy.send(r#"{"id":"a","method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(
        proxy.line(),
        r#"{"method":"notifications/progress","params":{"x":1.10}}"#
    );
    assert_eq!(proxy.line(), r#"{"id":"a",  "result":{"unknown":[0.10]}}"#);
    proxy.send("this is no JSON");
    let refused: Value = serde_json::from_str(&proxy.line()).expect("JSON");
    assert_eq!(
        (&refused["error"]["code"], &refused["id"]),
        (&json!(-32700), &Value::Null)
    );
    proxy.end();
    let requests = daemon.requests();
    assert_eq!(requests[0].header("mcp-session-id"), None);
    for later in &requests[1..] {
        assert_eq!(
            later.header("mcp-session-id"),
            Some("s-1"),
            "{}",
            later.line()
        );
        assert_eq!(later.header("mcp-protocol-version"), Some("2025-11-25"));
    }
    let listed = requests
        .iter()
        .find(|request| method(request) == "tools/list");
    let listed = listed.expect("asked").body.trim_end().to_owned();
    assert_eq!(
        listed,
        r#"{"id":1,"method":"tools/list","unknown":{"kept": true}}"#
    );
    assert_eq!(
        requests.last().map(ReceivedRequest::line).as_deref(),
        Some("DELETE /mcp/time")
    );
}

#[test]
fn a_broken_stream_is_resumed_at_its_last_event() {
    let daemon = Scripted::start(|request| match request.method.as_str() {
        "GET" => match request.header("last-event-id") {
            Some("7") => events("id: 8\ndata: {\"id\":1,\"result\":{}}\n\n"),
            _ => response(405, "application/json", ""),
        },
        "DELETE" => response(200, "application/json", ""),
        _ => match method(request).as_str() {
            "initialize" => greets("s-1"),
            "tools/call" => {
                events("id: 7\ndata: {\"method\":\"notifications/progress\"}\n\n").cut()
            }
            _ => accepted(),
        },
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.begin();
    proxy.send(r#"{"id":1,"method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(proxy.line(), r#"{"method":"notifications/progress"}"#);
    assert_eq!(proxy.line(), r#"{"id":1,"result":{}}"#);
    proxy.end();
    let calls = daemon
        .requests()
        .iter()
        .filter(|request| method(request) == "tools/call")
        .count();
    assert_eq!(calls, 1, "a call must not be made twice");
}

#[test]
fn a_lost_call_gets_an_error_and_is_not_repeated() {
    let daemon = Scripted::start(|request| match method(request).as_str() {
        "initialize" => greets("s-1"),
        "tools/call" => events(": nothing\n\n").cut(),
        _ if request.method == "GET" => response(405, "application/json", ""),
        _ => accepted(),
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.begin();
    proxy.send(r#"{"id":1,"method":"tools/call","params":{"name":"t"}}"#);
    let lost: Value = serde_json::from_str(&proxy.line()).expect("JSON");
    assert_eq!(lost["id"], 1);
    let message = lost["error"]["message"].as_str().expect("text");
    assert!(
        message.contains("whether it was carried out is not known"),
        "{message}"
    );
    proxy.end();
    let calls = daemon
        .requests()
        .iter()
        .filter(|request| method(request) == "tools/call")
        .count();
    assert_eq!(calls, 1);
}

#[test]
fn a_session_that_the_gateway_has_lost_is_created_again() {
    static SESSIONS: AtomicUsize = AtomicUsize::new(0);
    let daemon = Scripted::start(|request| {
        let is_old = request.header("mcp-session-id") == Some("s-0");
        let forgot =
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "gone"}});
        match (request.method.as_str(), method(request).as_str()) {
            ("GET", _) => response(405, "application/json", ""),
            (_, "initialize") => {
                let number = SESSIONS.fetch_add(1, Ordering::SeqCst);
                greets(&format!("s-{number}"))
            }
            (_, "tools/call") if is_old => response(404, "application/json", forgot.to_string()),
            (_, "tools/call") => answer(&json!({"id": 5, "result": {"again": true}})),
            _ => accepted(),
        }
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.begin();
    proxy.send(r#"{"id":5,"method":"tools/call","params":{"name":"t"}}"#);
    // Nothing of the second handshake reaches the client.
    assert_eq!(proxy.line(), r#"{"id":5,"result":{"again":true}}"#);
    proxy.end();
    let lines: Vec<String> = daemon
        .requests()
        .iter()
        .filter(|request| request.method == "POST")
        .map(|request| {
            let session = request.header("mcp-session-id").unwrap_or("-").to_owned();
            format!("{} {session}", method(request))
        })
        .collect();
    assert_eq!(
        lines,
        [
            "initialize -",
            "notifications/initialized s-0",
            "tools/call s-0",
            "initialize -",
            "notifications/initialized s-1",
            "tools/call s-1",
        ]
    );
}

/// A daemon that numbers its sessions. The first one is lost when tools are listed.
fn forgetful(
    others: impl Fn(&ReceivedRequest, &str) -> ScriptedResponse + Send + Sync + 'static,
) -> Scripted {
    let sessions = AtomicUsize::new(0);
    Scripted::start(move |request| {
        let session = request.header("mcp-session-id").unwrap_or_default();
        match method(request).as_str() {
            "initialize" => {
                let number = sessions.fetch_add(1, Ordering::SeqCst);
                greets(&format!("s-{number}"))
            }
            "tools/list" if session == "s-0" => response(404, "application/json", ""),
            "tools/list" => answer(&json!({"id": 2, "result": {}})),
            _ => others(request, session),
        }
    })
}

#[test]
fn the_log_level_and_subscriptions_are_repeated_in_a_new_session() {
    let daemon = forgetful(
        |request, _| match (request.method.as_str(), &request.json()["id"]) {
            ("GET", _) => response(405, "application/json", ""),
            (_, Value::Null) => accepted(),
            (_, id) if request.json()["params"]["uri"] == "x://none" => {
                answer(&json!({"id": id, "error": {"code": -32002, "message": "none"}}))
            }
            // Some answer in a stream, after something else.
            (_, id) if request.json()["params"]["uri"] == "x://b" => {
                let done = json!({"id": id, "result": {}});
                events(format!(
                    "data: {{\"method\":\"notifications/message\"}}\n\ndata: {done}\n\n"
                ))
            }
            (_, id) => answer(&json!({"id": id, "result": {}})),
        },
    );
    let mut proxy = Proxy::start(&daemon);
    proxy.begin();
    let wishes = [
        ("logging/setLevel", "level", "debug"),
        ("logging/setLevel", "level", "error"),
        ("resources/subscribe", "uri", "x://a"),
        ("resources/subscribe", "uri", "x://b"),
        ("resources/subscribe", "uri", "x://c"),
        ("resources/subscribe", "uri", "x://none"),
        ("resources/unsubscribe", "uri", "x://c"),
    ];
    for (number, (method, key, value)) in wishes.into_iter().enumerate() {
        let id = number + 10;
        proxy.send(&json!({"id": id, "method": method, "params": {key: value}}).to_string());
        while !proxy.line().contains(&format!("\"id\":{id}")) {}
    }
    proxy.send(r#"{"id":2,"method":"tools/list"}"#);
    assert_eq!(proxy.line(), r#"{"id":2,"result":{}}"#);
    assert_eq!(proxy.rest(), [""; 0], "it was answered before");
    let requests = daemon.requests();
    let again = requests.iter().filter(|request| request.method == "POST");
    let again = again.filter(|request| request.header("mcp-session-id") == Some("s-1"));
    let again: Vec<_> = again
        .map(|request| format!("{} {}", method(request), request.json()["params"]))
        .collect();
    assert_eq!(
        again,
        [
            "notifications/initialized null",
            r#"logging/setLevel {"level":"error"}"#,
            r#"resources/subscribe {"uri":"x://a"}"#,
            r#"resources/subscribe {"uri":"x://b"}"#,
            "tools/list null",
        ]
    );
}

#[test]
fn the_event_stream_of_a_new_session_starts_at_its_beginning() {
    let news = |number: &str, of: &str| {
        format!("retry: 2000\nid: {number}\ndata: {{\"method\":\"notifications/{of}\"}}\n\n")
    };
    let daemon = forgetful(move |request, session| {
        let after = request.header("last-event-id");
        match (request.method.as_str(), session, after) {
            ("GET", "s-0", _) => events(news("0-57", "old")),
            ("GET", _, None) => events(news("0-1", "new")).open(),
            // Events up to that number count as received.
            ("GET", ..) => events(news("0-58", "later")).open(),
            _ => accepted(),
        }
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.begin();
    let old = r#"{"method":"notifications/old"}"#;
    assert_eq!(proxy.line(), old);
    // Another request detects the lost session before the event stream reconnects. The old event may be repeated
    // until then, and the new one may arrive before the response.
    proxy.send(r#"{"id":2,"method":"tools/list"}"#);
    let mut next = || std::iter::repeat_with(|| proxy.line()).find(|line| line != old);
    let mut requests = [next(), next()].map(Option::unwrap_or_default);
    requests.sort_unstable();
    let expected = [
        r#"{"id":2,"result":{}}"#,
        r#"{"method":"notifications/new"}"#,
    ];
    assert_eq!(requests, expected);
    proxy.end();
}

#[test]
fn a_call_is_not_resumed_in_another_session() {
    let daemon = forgetful(|request, session| {
        let after = request.header("last-event-id");
        match (request.method.as_str(), session, after) {
            ("GET", "s-0", Some("1-7")) => events(": nothing yet\n\n").cut(),
            ("GET", _, Some(_)) => events("id: 1-8\ndata: {\"id\":1,\"result\":{}}\n\n"),
            ("GET", ..) => response(405, "application/json", ""),
            _ if method(request) == "tools/call" => {
                events("id: 1-7\ndata: {\"method\":\"notifications/progress\"}\n\n").cut()
            }
            _ => accepted(),
        }
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.begin();
    proxy.send(r#"{"id":1,"method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(proxy.line(), r#"{"method":"notifications/progress"}"#);
    proxy.send(r#"{"id":2,"method":"tools/list"}"#);
    // In either order.
    let mut answers = [proxy.line(), proxy.line()]
        .map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let [lost, listed] = answers;
    assert_eq!(
        (&lost["id"], &lost["error"]["code"]),
        (&json!(1), &json!(-32000)),
        "{lost}"
    );
    assert_eq!(listed, json!({"id": 2, "result": {}}));
    assert_eq!(proxy.rest(), [""; 0]);
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;

#[test]
fn a_modern_request_gets_its_headers() {
    let daemon = Scripted::start(|request| match method(request).as_str() {
        "tools/list" => answer(&json!({"id": 1, "result": {"tools": [
            {"name": "t", "inputSchema": {"properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
            }}},
        ]}})),
        _ => answer(&json!({"id": 2, "result": {}})),
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.send(&format!(
        r#"{{"id":1,"method":"tools/list","params":{{{META}}}}}"#
    ));
    assert!(proxy.line().contains("x-mcp-header"));
    let call = format!(
        r#"{{"id":2,"method":"tools/call","params":{{"name":"t","arguments":{{"region":"eu"}},{META}}}}}"#
    );
    proxy.send(&call);
    assert_eq!(proxy.line(), r#"{"id":2,"result":{}}"#);
    proxy.end();
    let requests = daemon.requests();
    let last = requests.last().expect("asked");
    assert_eq!(last.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(last.header("mcp-method"), Some("tools/call"));
    assert_eq!(last.header("mcp-name"), Some("t"));
    assert_eq!(last.header("mcp-param-region"), Some("eu"));
    assert_eq!(last.header("mcp-session-id"), None);
    assert_eq!(
        daemon.lines(),
        ["POST /mcp/time"; 2],
        "there is no session to delete"
    );
}

#[test]
fn a_cancelled_request_is_not_waited_for() {
    let daemon = Scripted::start(|request| match method(request).as_str() {
        "tools/call" => events(": nothing yet\n\n").open(),
        _ => answer(&json!({"id": 2, "result": {}})),
    });
    let mut proxy = Proxy::start(&daemon);
    let request = |id: u8, method: &str| {
        format!(r#"{{"id":{id},"method":"{method}","params":{{"name":"t",{META}}}}}"#)
    };
    proxy.send(&request(1, "tools/call"));
    wait_until("the call arrives", || !daemon.lines().is_empty());
    proxy.send(r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#);
    proxy.send(&request(2, "tools/list"));
    assert_eq!(proxy.line(), r#"{"id":2,"result":{}}"#);
    let since = Instant::now();
    proxy.end();
    // The proxy would wait for a call that was not cancelled.
    assert!(
        since.elapsed() < Duration::from_secs(8),
        "{:?}",
        since.elapsed()
    );
    let was_cancelled = daemon
        .requests()
        .iter()
        .any(|request| method(request) == "notifications/cancelled");
    assert!(
        !was_cancelled,
        "a modern request is cancelled by closing its stream"
    );
}

#[test]
fn a_refusal_becomes_the_error_response_of_its_request() {
    let daemon = Scripted::start(|_| {
        let body =
            json!({"error": {"code": "not_found", "message": "no MCP server is called `time`"}});
        response(404, "application/json", body.to_string())
    });
    let mut proxy = Proxy::start(&daemon);
    proxy.send(INITIALIZE);
    let refused: Value = serde_json::from_str(&proxy.line()).expect("JSON");
    assert_eq!(refused["id"], 0);
    assert_eq!(
        refused["error"]["message"],
        "no MCP server is called `time`"
    );
    proxy.end();
}

#[test]
fn a_batch_is_refused_by_the_proxy() {
    let daemon = Scripted::start(|_| accepted());
    let mut proxy = Proxy::start(&daemon);
    proxy.send(r#"[{"id":1,"method":"a"},{"method":"notifications/n"}]"#);
    let refused: Value = serde_json::from_str(&proxy.line()).expect("JSON");
    assert_eq!(refused["id"], Value::Null);
    assert_eq!(refused["error"]["code"], -32600);
    proxy.end();
    assert_eq!(daemon.lines(), [""; 0]);
}

fn is_gone_within(mut proxy: Proxy, most: Duration) {
    let since = Instant::now();
    while proxy.child.try_wait().expect("looked").is_none() {
        assert!(since.elapsed() < most, "it is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server that takes its time to start.
fn slow() -> Scripted {
    Scripted::start(|_| events(": starting\n\n").open())
}

#[test]
fn a_signal_ends_the_proxy_while_the_server_starts() {
    let daemon = slow();
    let mut proxy = Proxy::start(&daemon);
    proxy.send(INITIALIZE);
    wait_until("the greeting arrives", || !daemon.lines().is_empty());
    let pid = rustix::process::Pid::from_child(&proxy.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    is_gone_within(proxy, Duration::from_secs(8));
}

#[test]
fn closing_stdin_ends_the_proxy_while_the_server_starts() {
    let daemon = slow();
    let mut proxy = Proxy::start(&daemon);
    proxy.send(INITIALIZE);
    wait_until("the greeting arrives", || !daemon.lines().is_empty());
    drop(proxy.input.take());
    is_gone_within(proxy, Duration::from_secs(25));
}

#[test]
fn a_response_that_always_breaks_off_ends_with_an_error() {
    let daemon = Scripted::start(|_| events(": nothing\n\n").cut());
    let mut proxy = Proxy::start(&daemon);
    proxy.send(&format!(
        r#"{{"id":1,"method":"tools/list","params":{{{META}}}}}"#
    ));
    let lost: Value = serde_json::from_str(&proxy.line()).expect("JSON");
    assert_eq!(
        (&lost["id"], &lost["error"]["code"]),
        (&json!(1), &json!(-32000))
    );
    let count = daemon.lines().len();
    assert!((2..=20).contains(&count), "asked {count} times");
    proxy.end();
}
