//! Live commands: server-sent events and WebSocket, and the daemon's events.

use std::time::Duration;

use futures_util::SinkExt as _;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::api::{Api, Gate, Socket, eventually, next_frame, refused};

const WS: &str = "/v1/sessions/w/exec/ws";

/// Reads `(event, data)` pairs.
struct Events {
    response: Response,
    text: String,
}

impl Events {
    async fn next(&mut self) -> Option<(String, Value)> {
        let next = async {
            loop {
                if let Some((block, rest)) = self.text.split_once("\n\n") {
                    let (block, rest) = (block.to_owned(), rest.to_owned());
                    self.text = rest;
                    let field = |name: &str| {
                        block
                            .lines()
                            .find_map(|line| line.strip_prefix(name).map(str::trim))
                            .map(str::to_owned)
                    };
                    let (Some(event), Some(data)) = (field("event:"), field("data:")) else {
                        continue;
                    };
                    return Some((event, serde_json::from_str(&data).expect("JSON")));
                }
                let chunk = self.response.chunk().await.expect("a piece")?;
                self.text
                    .push_str(std::str::from_utf8(&chunk).expect("text"));
            }
        };
        tokio::time::timeout(Duration::from_secs(10), next)
            .await
            .expect("an event within 10 s")
    }
}

async fn exec_stream(api: &Api, spec: &Value) -> Events {
    let response = api
        .request(Method::POST, "/v1/sessions/w/exec/stream")
        .header("content-type", "application/json")
        .body(spec.to_string())
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    Events {
        response,
        text: String::new(),
    }
}

#[tokio::test]
async fn output_comes_as_events_while_the_command_runs() {
    let api = Api::start().await;
    let gate = Gate::new();
    let cmd = format!(
        "printf 'a\\r\\nb'; {}; echo c >&2; cat; exit 4",
        gate.wait()
    );
    let spec = json!({"cmd": cmd, "stdin": "in"});
    let mut events = exec_stream(&api, &spec).await;
    let (name, hello) = events.next().await.expect("an event");
    assert_eq!(name, "started");
    assert_eq!(hello["session_id"], "w");
    assert_eq!(
        events.next().await,
        Some(("stdout".to_owned(), json!({"data": "a\r\nb"})))
    );
    // It was not held back until the end.
    gate.open();
    let mut rest = Vec::new();
    while let Some((name, data)) = events.next().await {
        rest.push((name, data));
    }
    assert!(
        rest.contains(&("stderr".to_owned(), json!({"data": "c\n"}))),
        "{rest:?}"
    );
    assert!(
        rest.contains(&("stdout".to_owned(), json!({"data": "in"}))),
        "{rest:?}"
    );
    let (name, exit) = rest.last().expect("an exit");
    assert_eq!(name, "exit");
    assert_eq!(exit["exit_code"], 4);
    assert_eq!(exit["status"], "completed");
}

#[tokio::test]
async fn characters_are_not_torn_between_events() {
    let api = Api::start().await;
    let spec = json!({"cmd": "printf '\\345'; sleep 0.3; printf '\\255\\227\\n'; printf '\\377'"});
    let mut events = exec_stream(&api, &spec).await;
    let mut text = String::new();
    while let Some((name, data)) = events.next().await {
        if name == "stdout" {
            text.push_str(data["data"].as_str().expect("text"));
        }
    }
    assert_eq!(text, "字\n\u{fffd}");
}

#[tokio::test]
async fn an_invalid_stream_request_is_an_http_error() {
    let api = Api::start().await;
    let path = "/v1/sessions/w/exec/stream";
    refused(
        &api.post(path, &json!({"cmd": ""})).await,
        400,
        "validation_error",
    );
    refused(
        &api.post(path, &json!({"nope": 1})).await,
        400,
        "validation_error",
    );
}

#[tokio::test]
async fn a_disconnect_ends_the_command() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let alive = dir.path().join("alive");
    let cmd = format!("while :; do date >> {}; sleep 0.05; done", alive.display());
    let size = || std::fs::metadata(&alive).map_or(0, |file| file.len());
    let stops_growing = async || {
        eventually("the command ends", || async {
            let before = size();
            tokio::time::sleep(Duration::from_millis(300)).await;
            size() == before
        })
        .await;
    };
    let mut events = exec_stream(&api, &json!({"cmd": cmd})).await;
    events.next().await.expect("an event");
    eventually("it runs", || async { size() > 0 }).await;
    drop(events);
    stops_growing().await;

    let mut socket = start(&api, json!({"spec": {"cmd": cmd}})).await;
    let before = size();
    eventually("it runs", || async { size() > before }).await;
    socket.close(None).await.expect("closed");
    stops_growing().await;
}

async fn send(socket: &mut Socket, frame: Value) {
    socket
        .send(Message::text(frame.to_string()))
        .await
        .expect("sent");
}

/// Starts a command and reads the hello.
async fn start(api: &Api, mut frame: Value) -> Socket {
    let mut socket = api.socket(WS).await;
    frame["type"] = "start".into();
    send(&mut socket, frame).await;
    let hello = text_frame(&mut socket).await;
    assert_eq!(hello["type"], "started", "{hello}");
    assert_eq!(hello["session_id"], "w");
    assert!(hello["exec_id"].is_u64());
    socket
}

async fn text_frame(socket: &mut Socket) -> Value {
    let frame = next_frame(socket).await.expect("a frame");
    let Message::Text(text) = frame else {
        panic!("{frame:?}");
    };
    serde_json::from_str(text.as_str()).expect("JSON")
}

/// Output until the exit frame, which must be followed by a clean close.
async fn finish(socket: &mut Socket) -> (Vec<u8>, Vec<u8>, Value) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match next_frame(socket).await.expect("a frame") {
            Message::Binary(bytes) => match bytes.split_first().expect("a channel") {
                (1, rest) => stdout.extend_from_slice(rest),
                (2, rest) => stderr.extend_from_slice(rest),
                (channel, _) => panic!("channel {channel}"),
            },
            Message::Text(text) => {
                let frame: Value = serde_json::from_str(text.as_str()).expect("JSON");
                assert_eq!(frame["type"], "exit", "{frame}");
                assert_eq!(next_frame(socket).await, None);
                return (stdout, stderr, frame);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_command_speaks_both_ways_over_a_websocket() {
    let api = Api::start().await;
    let spec = json!({"spec": {"cmd": "cat; echo done >&2; exit 7"}, "stdin": true});
    let mut socket = start(&api, spec).await;
    socket
        .send(Message::binary(b"\xff\x00bytes\n".to_vec()))
        .await
        .expect("sent");
    send(&mut socket, json!({"type": "stdin", "data": "text"})).await;
    send(&mut socket, json!({"type": "close_stdin"})).await;
    let (stdout, stderr, exit) = finish(&mut socket).await;
    assert_eq!(stdout, b"\xff\x00bytes\ntext");
    assert_eq!(stderr, b"done\n");
    assert_eq!(exit["exit_code"], 7);
    assert_eq!(exit["status"], "completed");
}

#[tokio::test]
async fn without_stdin_there_is_none_and_given_stdin_is_all_there_is() {
    let api = Api::start().await;
    let mut socket = start(&api, json!({"spec": {"cmd": "cat; echo end"}})).await;
    assert_eq!(finish(&mut socket).await.0, b"end\n");
    let mut socket = start(&api, json!({"spec": {"cmd": "cat", "stdin": "given"}})).await;
    assert_eq!(finish(&mut socket).await.0, b"given");
}

#[tokio::test]
async fn argv_runs_without_a_shell() {
    let api = Api::start().await;
    let argv = json!({"argv": ["printf", "%s|", "a b", "$HOME", ";"]});
    let mut socket = start(&api, argv).await;
    assert_eq!(finish(&mut socket).await.0, b"a b|$HOME|;|");
}

#[tokio::test]
async fn a_signal_reaches_a_command_that_does_not_read() {
    let api = Api::start().await;
    let mut socket = start(&api, json!({"spec": {"cmd": "sleep 60"}, "stdin": true})).await;
    // More than any pipe holds: the write waits, and the signal must not.
    for _ in 0..8 {
        socket
            .send(Message::binary(vec![b'x'; 64 * 1024]))
            .await
            .expect("sent");
    }
    send(&mut socket, json!({"type": "signal", "signal": "TERM"})).await;
    let (_, _, exit) = finish(&mut socket).await;
    assert_eq!(exit["exit_code"], 143, "{exit}");
}

#[tokio::test]
async fn a_timeout_ends_a_live_command() {
    let api = Api::start().await;
    let spec = json!({"spec": {"cmd": "sleep 60", "timeout_sec": 1}});
    let mut socket = start(&api, spec).await;
    let (_, _, exit) = finish(&mut socket).await;
    assert_eq!(exit["status"], "timed_out");
    assert_eq!(exit["exit_code"], Value::Null);
    assert_eq!(exit["reason"]["kind"], "timeout");
}

#[tokio::test]
async fn a_terminal_is_a_terminal() {
    let api = Api::start().await;
    let spec = json!({
        "spec": {"cmd": "test -t 0 && test -t 1 && test -t 2 && stty size; read line; stty size; echo got $line"},
        "tty": {"rows": 24, "cols": 80}
    });
    let mut socket = start(&api, spec).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("24 80") {
        let Some(Message::Binary(bytes)) = next_frame(&mut socket).await else {
            panic!("ended early: {}", String::from_utf8_lossy(&seen));
        };
        assert_eq!(bytes.first(), Some(&1));
        seen.extend_from_slice(&bytes[1..]);
    }
    send(
        &mut socket,
        json!({"type": "resize", "rows": 50, "cols": 132}),
    )
    .await;
    send(&mut socket, json!({"type": "stdin", "data": "input\n"})).await;
    let (stdout, stderr, exit) = finish(&mut socket).await;
    let text = String::from_utf8_lossy(&stdout);
    assert!(text.contains("50 132"), "{text}");
    assert!(text.contains("got input"), "{text}");
    assert!(stderr.is_empty());
    assert_eq!(exit["exit_code"], 0);
}

#[tokio::test]
async fn invalid_frames_are_reported_and_a_running_command_continues() {
    let api = Api::start().await;
    for (first, code) in [
        (Message::text("nonsense"), "validation_error"),
        (Message::text("[]"), "validation_error"),
        (Message::text("{}"), "validation_error"),
        (
            Message::text("{\"type\":\"close_stdin\"}"),
            "validation_error",
        ),
        (
            Message::text("{\"type\":\"start\",\"spec\":{\"cmd\":\"\"}}"),
            "validation_error",
        ),
        (
            Message::text("{\"type\":\"start\",\"spec\":{\"nope\":1}}"),
            "validation_error",
        ),
        (
            Message::text("{\"type\":\"start\",\"argv\":[]}"),
            "validation_error",
        ),
        (
            Message::text("{\"type\":\"start\",\"argv\":[\"a\\u0000\"]}"),
            "validation_error",
        ),
        (
            Message::text(
                "{\"type\":\"start\",\"spec\":{\"cmd\":\"true\"},\"tty\":{\"rows\":0,\"cols\":1}}",
            ),
            "validation_error",
        ),
        (Message::binary(b"bytes".to_vec()), "validation_error"),
    ] {
        let mut socket = api.socket(WS).await;
        socket.send(first.clone()).await.expect("sent");
        let frame = text_frame(&mut socket).await;
        assert_eq!(frame["type"], "error", "{first:?}");
        assert_eq!(frame["error"]["code"], code, "{frame}");
        assert_eq!(next_frame(&mut socket).await, None);
    }
    let mut socket = start(&api, json!({"spec": {"cmd": "cat"}, "stdin": true})).await;
    for wrong in [
        json!({"type": "start", "spec": {"cmd": "true"}}),
        json!({"type": "what"}),
        json!({"type": "signal", "signal": 999}),
        json!({"type": "resize", "rows": 1, "cols": 1}),
    ] {
        send(&mut socket, wrong).await;
        let frame = text_frame(&mut socket).await;
        assert_eq!(frame["type"], "error", "{frame}");
    }
    send(&mut socket, json!({"type": "stdin", "data": "still here"})).await;
    send(&mut socket, json!({"type": "close_stdin"})).await;
    assert_eq!(finish(&mut socket).await.0, b"still here");
}

#[tokio::test]
async fn a_slow_reader_gets_all_output() {
    let api = Api::start().await;
    let mut socket = start(&api, json!({"spec": {"cmd": "head -c 5000000 /dev/zero"}})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (stdout, _, exit) = finish(&mut socket).await;
    assert_eq!(stdout.len(), 5_000_000);
    assert_eq!(exit["exit_code"], 0);
}

#[tokio::test]
async fn the_daemons_events_can_be_watched() {
    let api = Api::start().await;
    let watch = async |path: &str| Events {
        response: api
            .request(Method::GET, path)
            .send()
            .await
            .expect("an answer"),
        text: String::new(),
    };
    let mut all = watch("/v1/events").await;
    let mut one = watch("/v1/events?session_id=b").await;
    assert_eq!(all.response.headers()["content-type"], "text/event-stream");
    api.post("/v1/sessions/a/exec", &json!({"cmd": "exit 2"}))
        .await;
    api.post("/v1/sessions/b", &json!({})).await;
    api.delete("/v1/sessions/b").await;
    let mut names = Vec::new();
    for _ in 0..5 {
        let (name, data) = all.next().await.expect("an event");
        assert_eq!(data["event"], name.as_str());
        names.push((name, data["session_id"].as_str().expect("an id").to_owned()));
    }
    let expected = [
        ("session_created", "a"),
        ("exec_started", "a"),
        ("exec_finished", "a"),
        ("session_created", "b"),
        ("session_deleted", "b"),
    ];
    assert!(
        names
            .iter()
            .map(|(n, s)| (n.as_str(), s.as_str()))
            .eq(expected),
        "{names:?}"
    );
    let (name, data) = one.next().await.expect("an event");
    assert_eq!(
        (name.as_str(), &data["session_id"]),
        ("session_created", &json!("b"))
    );
    refused(
        &api.get("/v1/events?session_id=").await,
        400,
        "validation_error",
    );
    refused(&api.get("/v1/events?nope=1").await, 400, "validation_error");
}
