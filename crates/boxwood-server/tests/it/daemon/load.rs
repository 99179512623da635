//! Overload: excess requests are refused at once with a typed error, other clients are served, and all resources are
//! released afterwards.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::api::{Api, Gate, answer, eventually, refused};

pub(crate) async fn number(api: &Api, name: &str) -> u64 {
    let text = api.request(Method::GET, "/metrics").send().await;
    let text = text.expect("an answer").text().await.expect("text");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Nothing is running, waiting or in memory.
async fn is_at_rest(api: &Api) {
    eventually("the daemon is at rest", || async {
        number(api, "boxwood_turns").await == 0
            && number(api, "boxwood_turns_waiting").await == 0
            && number(api, "boxwood_streamed_commands").await == 0
            && number(api, "boxwood_bytes_in_flight").await == 0
    })
    .await;
}

async fn exec(api: &Api, session: &str, cmd: &str) -> (StatusCode, Value) {
    let path = format!("/v1/sessions/{session}/exec");
    api.post(&path, &json!({ "cmd": cmd })).await
}

#[tokio::test]
async fn many_requests_to_one_session_are_bounded_and_do_not_affect_others() {
    let api = Api::start_with(|config| {
        config.load.at_once = Some(4);
        config.load.at_once_per_session = Some(4);
        config.load.waiting_per_session = Some(8);
        config.load.longest_wait_ms = Some(60_000);
    })
    .await;
    let api = Arc::new(api);
    let gate = Gate::new();
    for session in ["crowd", "quiet"] {
        api.post(&format!("/v1/sessions/{session}"), &json!({}))
            .await;
    }
    let crowd: Vec<_> = (0..40)
        .map(|_| {
            let api = Arc::clone(&api);
            let body = json!({ "cmd": gate.wait() });
            tokio::spawn(async move {
                let request = api
                    .request(Method::POST, "/v1/sessions/crowd/exec")
                    .json(&body);
                let response = request.send().await.expect("an answer");
                let retry = response.headers().contains_key("retry-after");
                (crate::api::json(response).await, retry)
            })
        })
        .collect();
    // None of them continues before the gate opens; the other session does not wait for it.
    eventually("all without a place are refused", || async {
        number(&api, "boxwood_refused_total").await >= 28
    })
    .await;
    let (status, body) = exec(&api, "quiet", "echo here").await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["stdout"], "here\n");
    assert_eq!(number(&api, "boxwood_turns_waiting").await, 8);
    gate.open();

    let (mut served, mut away) = (0, 0);
    for task in crowd {
        let (got, retry) = task.await.expect("a task");
        if got.0 == 200 {
            served += 1;
        } else {
            away += 1;
            refused(&got, 503, "capacity");
            assert!(retry, "the refusal has no retry-after header");
            assert!(got.1["error"]["hint"].is_string(), "{}", got.1);
        }
    }
    assert_eq!((served, away), (12, 28), "four running and eight queued");
    is_at_rest(&api).await;
    assert_eq!(exec(&api, "crowd", "true").await.0, 200);
}

#[tokio::test]
async fn queued_requests_of_disconnected_clients_are_removed() {
    let api = Api::start_with(|config| config.load.at_once_per_session = Some(1)).await;
    api.post("/v1/sessions/s", &json!({})).await;
    let mut callers = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(api.daemon.address())
            .await
            .expect("a connection");
        let body = r#"{"cmd":"sleep 20"}"#;
        let request = format!(
            "POST /v1/sessions/s/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        callers.push(stream);
    }
    eventually("one works and the others wait", || async {
        number(&api, "boxwood_turns").await == 1
            && number(&api, "boxwood_turns_waiting").await == 19
    })
    .await;
    drop(callers);
    is_at_rest(&api).await;
    let (status, body) = exec(&api, "s", "true").await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn queued_requests_time_out() {
    let api = Api::start_with(|config| {
        config.load.at_once_per_session = Some(1);
        config.load.longest_wait_ms = Some(200);
    })
    .await;
    api.post("/v1/sessions/s", &json!({})).await;
    let gate = Gate::new();
    let command = gate.wait();
    let (long, timed_out) = tokio::join!(exec(&api, "s", &command), async {
        eventually("the long one has the turn", || async {
            number(&api, "boxwood_turns").await == 1
        })
        .await;
        let timed_out = exec(&api, "s", "true").await;
        gate.open();
        timed_out
    });
    assert_eq!(long.0, 200, "{}", long.1);
    refused(&timed_out, 503, "capacity");
    is_at_rest(&api).await;
}

#[tokio::test]
async fn bodies_beyond_the_budget_are_refused_and_small_ones_are_served() {
    let api = Api::start_with(|config| config.load.bytes_in_flight_mb = Some(4)).await;
    for session in ["heavy", "light"] {
        api.post(&format!("/v1/sessions/{session}"), &json!({}))
            .await;
    }
    let gate = Gate::new();
    let body = json!({
        "cmd": format!("cat > /dev/null; {}", gate.wait()),
        "stdin": "x".repeat(3 * 1024 * 1024),
        "timeout_sec": 60,
    });
    let heavy = || api.post("/v1/sessions/heavy/exec", &body);
    let others = async {
        eventually("the first one is in memory", || async {
            number(&api, "boxwood_bytes_in_flight").await > 3 * 1024 * 1024
        })
        .await;
        let crowd = join_all((0..6).map(|_| heavy()));
        let light = exec(&api, "light", "echo light");
        let answers = tokio::join!(crowd, light);
        // All of them came while the first one ran.
        gate.open();
        answers
    };
    let (first, (crowd, light)) = tokio::join!(heavy(), others);
    assert_eq!(first.0, 200, "what runs goes on: {}", first.1);
    assert_eq!(light.0, 200, "{}", light.1);
    for got in crowd {
        refused(&got, 503, "capacity");
    }
    is_at_rest(&api).await;
    assert_eq!(heavy().await.0, 200, "there is room again");
    is_at_rest(&api).await;
}

#[tokio::test]
async fn a_large_response_is_charged_until_it_is_sent() {
    // More than the kernel keeps for a socket.
    const LENGTH: u64 = 12_000_000;
    let api = Api::start_with(|config| config.session.capture_bytes = 16_000_000).await;
    api.post("/v1/sessions/s", &json!({})).await;
    let cmd = format!("head -c {LENGTH} /dev/zero | tr '\\0' x");
    let body = json!({ "cmd": cmd }).to_string();
    let request = format!(
        "POST /v1/sessions/s/exec HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut slow = socket
        .connect(api.daemon.address())
        .await
        .expect("a connection");
    slow.write_all(request.as_bytes()).await.expect("sent");
    eventually("the answer waits to be read", || async {
        number(&api, "boxwood_turns").await == 0
            && number(&api, "boxwood_bytes_in_flight").await > LENGTH
    })
    .await;
    let mut got = Vec::new();
    slow.read_to_end(&mut got).await.expect("the whole answer");
    assert!(got.len() as u64 > LENGTH, "{}", got.len());
    is_at_rest(&api).await;
}

#[tokio::test]
async fn streamed_commands_have_a_bound_of_their_own() {
    let api = Api::start_with(|config| config.load.live_per_session = Some(2)).await;
    for session in ["a", "b"] {
        api.post(&format!("/v1/sessions/{session}"), &json!({}))
            .await;
    }
    let stream = |session: &str| {
        let path = format!("/v1/sessions/{session}/exec/stream");
        api.request(Method::POST, &path)
            .json(&json!({ "cmd": "sleep 30", "timeout_sec": 60 }))
    };
    let mut open = Vec::new();
    for session in ["a", "a", "b"] {
        let response = stream(session).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        open.push(response);
    }
    refused(&answer(stream("a")).await, 503, "capacity");
    // They take no turns while they run.
    assert_eq!(number(&api, "boxwood_turns").await, 0);
    assert_eq!(number(&api, "boxwood_streamed_commands").await, 3);
    assert_eq!(exec(&api, "a", "true").await.0, 200);
    drop(open);
    is_at_rest(&api).await;
}

#[tokio::test]
async fn managed_processes_of_one_session_have_a_bound() {
    let api = Api::start_with(|config| config.load.processes_per_session = Some(1)).await;
    for session in ["a", "b"] {
        api.post(&format!("/v1/sessions/{session}"), &json!({}))
            .await;
    }
    let start = async |session: &str, id: &str| {
        let path = format!("/v1/sessions/{session}/managed-process");
        api.post(&path, &json!({ "command": "cat", "process_id": id }))
            .await
    };
    assert_eq!(start("a", "one").await.0, 201);
    refused(&start("a", "two").await, 503, "capacity");
    assert_eq!(start("b", "one").await.0, 201);
    let stopped = api.delete("/v1/sessions/a/managed-process/one").await;
    assert_eq!(stopped.0, 200, "{}", stopped.1);
    assert_eq!(start("a", "two").await.0, 201);
}

/// For as long as it is open, not only while it is being made.
#[tokio::test]
async fn a_websocket_counts_as_a_connection() {
    let api = Api::start_with(|config| config.http.max_connections = 4).await;
    api.post("/v1/sessions/s", &json!({})).await;
    let path = "/v1/sessions/s/managed-process";
    let started = api.post(path, &json!({ "command": "cat" })).await;
    assert_eq!(started.0, 201, "{}", started.1);
    let relay = api.socket("/v1/sessions/s/managed-process/ws").await;
    // The client may keep its own connection or not, so as many are added as there is room for. Each is
    // answered before the next comes, and so is counted.
    let mut open = Vec::new();
    loop {
        let stream = TcpStream::connect(api.daemon.address()).await;
        let mut stream = stream.expect("a connection");
        let question = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        // The daemon may refuse before it has read everything.
        let _ = stream.write_all(question).await;
        let mut status = [0; b"HTTP/1.1 200".len()];
        let _ = stream.read_exact(&mut status).await;
        if &status != b"HTTP/1.1 200" {
            assert_eq!(&status, b"HTTP/1.1 503");
            break;
        }
        open.push(stream);
        assert!(open.len() < 4, "the relay is not counted");
    }
    let probe = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    drop(relay);
    eventually("its place is free again", || async {
        api.raw(probe).await.starts_with("HTTP/1.1 200")
    })
    .await;
}

#[tokio::test]
async fn connections_over_the_limit_are_refused_during_a_flood() {
    let api = Api::start_with(|config| config.http.max_connections = 16).await;
    api.post("/v1/sessions/s", &json!({})).await;
    let connecting = (0..80).map(|_| async {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(api.daemon.address()).await {
            // The rest of a connection that is just closed may be an error.
            let _ = stream.read_to_string(&mut text).await;
        }
        text
    });
    // The others are within the limit: they get no response before they send a request.
    let refused = stream::iter(connecting).buffer_unordered(80).take(80 - 16);
    let refused = tokio::time::timeout(Duration::from_secs(30), refused.collect::<Vec<_>>())
        .await
        .expect("all that are too many are told or closed");
    let mut refusals = 0;
    for text in refused {
        // Above the number of refusals that are sent at the same time, connections are closed without a response.
        if !text.is_empty() {
            refusals += 1;
            assert!(text.starts_with("HTTP/1.1 503"), "{text}");
            assert!(text.contains("retry-after: 1"), "{text}");
            assert!(text.contains("\"capacity\""), "{text}");
        }
    }
    assert!(refusals >= 40, "{refusals}");
    eventually("there is room again", || async {
        exec(&api, "s", "true").await.0 == 200
    })
    .await;
    assert!(number(&api, "boxwood_connections_refused_total").await >= refusals);
}
