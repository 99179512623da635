//! Byte relays and streams that are resumed.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::api::{Api, Gate, Socket, next_frame, next_text, refused};

const BASE: &str = "/v1/sessions/r/managed-process";
const RELAY: &str = "/v1/sessions/r/managed-process/ws";

async fn with_process(command: &str) -> Api {
    let api = Api::start().await;
    api.post("/v1/sessions/r", &json!({})).await;
    let spec = json!({"command": "sh", "args": ["-c", command]});
    let (status, body) = api.post(BASE, &spec).await;
    assert_eq!(status, 201, "{body}");
    api
}

async fn attach(api: &Api, since: &str) -> (Socket, Value) {
    let mut socket = api.socket(&format!("{RELAY}?since={since}")).await;
    let joined = news(&mut socket).await;
    assert!(joined["started_at"].is_string(), "{joined}");
    (socket, joined)
}

async fn news(socket: &mut Socket) -> Value {
    match next_frame(socket).await.expect("a frame") {
        Message::Text(text) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("not news: {other:?}"),
    }
}

async fn send(socket: &mut Socket, bytes: &[u8]) {
    let message = Message::binary(bytes.to_vec());
    socket.send(message).await.expect("sent");
}

async fn control(socket: &mut Socket, frame: &Value) {
    let message = Message::text(frame.to_string());
    socket.send(message).await.expect("sent");
}

/// So many bytes of output, and the last acknowledgement that came among them.
async fn bytes(socket: &mut Socket, count: usize) -> (Vec<u8>, Option<u64>) {
    let (mut all, mut accepted) = (Vec::new(), None);
    while all.len() < count {
        match next_frame(socket).await.expect("a frame") {
            Message::Binary(bytes) => all.extend_from_slice(&bytes),
            Message::Text(text) => {
                let news: Value = serde_json::from_str(&text).expect("JSON");
                accepted = Some(news["stdin"].as_u64().expect("an acknowledgement"));
            }
            other => panic!("{other:?}"),
        }
    }
    (all, accepted)
}

/// How an upgrade is declined.
async fn declined(api: &Api, query: &str) -> (reqwest::StatusCode, Value) {
    let url = format!("ws://{}{RELAY}?{query}", api.daemon.address());
    match tokio_tungstenite::connect_async(url).await {
        Err(Error::Http(answer)) => {
            let status = reqwest::StatusCode::from_u16(answer.status().as_u16());
            let body = answer.body().as_deref().expect("a body");
            (
                status.expect("a status"),
                serde_json::from_slice(body).expect("JSON"),
            )
        }
        other => panic!("not declined: {other:?}"),
    }
}

#[tokio::test]
async fn bytes_go_both_ways_and_are_counted() {
    let api = with_process("exec cat").await;
    let (mut socket, joined) = attach(&api, "0").await;
    assert_eq!(
        (&joined["stdout"], &joined["stdin"]),
        (&json!(0), &json!(0))
    );
    send(&mut socket, b"he").await;
    send(&mut socket, b"llo\n\xff\x00").await;
    let (output, mut accepted) = bytes(&mut socket, 8).await;
    assert_eq!(output, b"hello\n\xff\x00");
    while accepted != Some(8) {
        accepted = news(&mut socket).await["stdin"].as_u64();
    }
    socket.close(None).await.expect("closed");

    let (mut socket, joined) = attach(&api, "3").await;
    assert_eq!(
        (&joined["stdout"], &joined["stdin"]),
        (&json!(3), &json!(8))
    );
    assert_eq!(bytes(&mut socket, 5).await.0, b"lo\n\xff\x00");
    socket.close(None).await.expect("closed");

    // `now` starts after the output that was already delivered.
    let (mut socket, joined) = attach(&api, "now").await;
    assert_eq!(joined["stdout"], 8);
    send(&mut socket, b"!").await;
    assert_eq!(bytes(&mut socket, 1).await.0, b"!");
}

#[tokio::test]
async fn delivered_lines_can_be_read_again_as_bytes() {
    let api = with_process("echo one; echo two; exec cat").await;
    let mut plain = api.socket(RELAY).await;
    assert_eq!(next_text(&mut plain).await.as_deref(), Some("one"));
    assert_eq!(next_text(&mut plain).await.as_deref(), Some("two"));
    plain.send(Message::text("three")).await.expect("sent");
    assert_eq!(next_text(&mut plain).await.as_deref(), Some("three"));
    plain.close(None).await.expect("closed");
    let (mut socket, joined) = attach(&api, "4").await;
    assert_eq!(joined["stdin"], 6, "lines count with their ends");
    assert_eq!(bytes(&mut socket, 10).await.0, b"two\nthree\n");
}

#[tokio::test]
async fn the_exit_can_be_read_again() {
    let api = with_process("read line; printf bye; exit 3").await;
    let (mut socket, _) = attach(&api, "now").await;
    send(&mut socket, b"go\n").await;
    assert_eq!(bytes(&mut socket, 3).await.0, b"bye");
    let exited = loop {
        let news = news(&mut socket).await;
        if news.get("exited").is_some() {
            break news;
        }
    };
    assert_eq!(exited["exited"]["exit_code"], 3);
    assert_eq!(next_frame(&mut socket).await, None);

    let (mut socket, _) = attach(&api, "1").await;
    assert_eq!(bytes(&mut socket, 2).await.0, b"ye");
    assert_eq!(news(&mut socket).await["exited"]["exit_code"], 3);
    refused(
        &declined(&api, "since=now").await,
        409,
        "managed_process_conflict",
    );
}

#[tokio::test]
async fn the_end_of_the_input_is_a_frame() {
    let api = with_process("cat; echo done").await;
    let (mut socket, _) = attach(&api, "now").await;
    control(&mut socket, &json!({"type": "close_stdin"})).await;
    assert_eq!(bytes(&mut socket, 5).await.0, b"done\n");
    assert_eq!(news(&mut socket).await["exited"]["exit_code"], 0);
}

#[tokio::test]
async fn an_invalid_frame_is_an_error_and_the_relay_continues() {
    let api = with_process("exec cat").await;
    let (mut socket, _) = attach(&api, "now").await;
    for wrong in ["", "x", "{}", "{\"type\":\"start\"}"] {
        socket.send(Message::text(wrong)).await.expect("sent");
        let error_frame = news(&mut socket).await;
        assert_eq!(
            error_frame["error"]["code"], "validation_error",
            "{error_frame}"
        );
    }
    send(&mut socket, b"ok").await;
    assert_eq!(bytes(&mut socket, 2).await.0, b"ok");
}

#[tokio::test]
async fn invalid_offsets_are_refused_before_the_upgrade() {
    let api = with_process("exec cat").await;
    for wrong in ["", "-1", "later", "1.5", "18446744073709551616"] {
        let answer = declined(&api, &format!("since={wrong}")).await;
        refused(&answer, 400, "validation_error");
    }
    // There is nothing there yet.
    refused(&declined(&api, "since=1").await, 400, "validation_error");
    let plain = api.get(&format!("{RELAY}?since=0")).await;
    refused(&plain, 400, "validation_error");
}

#[tokio::test]
async fn discarded_output_is_gone() {
    let api = with_process("head -c 6000000 /dev/zero; exec cat").await;
    let (mut socket, _) = attach(&api, "0").await;
    bytes(&mut socket, 6_000_000).await;
    socket.close(None).await.expect("closed");
    refused(&declined(&api, "since=0").await, 410, "replay_gone");
    let (_socket, joined) = attach(&api, "6000000").await;
    assert_eq!(joined["stdout"], 6_000_000);
}

#[tokio::test]
async fn unacknowledged_output_is_kept() {
    let api = with_process("head -c 6000000 /dev/zero; exec cat").await;
    let (mut socket, _) = attach(&api, "0").await;
    control(&mut socket, &json!({"type": "ack", "stdout": 0})).await;
    // The first of it may be under way before the daemon hears of acknowledgements.
    let mut count = 0;
    while let Ok(Some(Ok(message))) =
        tokio::time::timeout(Duration::from_millis(700), socket.next()).await
    {
        count += message.into_data().len();
    }
    assert!(
        count < 5_000_000,
        "{count} bytes without an acknowledgement"
    );
    control(&mut socket, &json!({"type": "ack", "stdout": count})).await;
    let rest = bytes(&mut socket, 500_000).await.0.len();
    assert!(rest >= 500_000);
    socket.close(None).await.expect("closed");
    let (_socket, joined) = attach(&api, &count.to_string()).await;
    assert_eq!(joined["stdout"], count);
}

#[tokio::test]
async fn a_second_byte_client_waits_for_the_first() {
    let api = with_process("exec cat").await;
    let (mut first, _) = attach(&api, "0").await;
    let mut second = api.socket(&format!("{RELAY}?since=0")).await;
    send(&mut second, b"early\n").await;
    send(&mut first, b"one\n").await;
    assert_eq!(bytes(&mut first, 4).await.0, b"one\n");
    first.close(None).await.expect("closed");
    let joined = news(&mut second).await;
    assert_eq!(joined["stdout"], 0);
    assert_eq!(bytes(&mut second, 10).await.0, b"one\nearly\n");
}

#[tokio::test]
async fn a_stale_incarnation_is_gone_on_every_route() {
    let api = Api::start().await;
    let (_, created) = api.post("/v1/sessions/r", &json!({})).await;
    let incarnation = created["incarnation"].as_u64().expect("a number");
    let incarnation_query = format!("incarnation={incarnation}");
    let session = "/v1/sessions/r";
    let exec = json!({"cmd": "echo hi"});
    let (status, body) = api
        .post(&format!("{session}/exec?{incarnation_query}"), &exec)
        .await;
    assert_eq!(status, 200, "{body}");
    let (status, _) = api
        .get(&format!(
            "{session}/files/list?path=/tmp&{incarnation_query}"
        ))
        .await;
    assert_eq!(status, 200, "the route's own words are still understood");
    api.delete(session).await;
    // Both a replaced and a deleted session are gone.
    for is_replaced in [false, true] {
        if is_replaced {
            api.post(session, &json!({})).await;
        }
        for path in [
            "",
            "/processes",
            "/execs",
            "/execs/1",
            "/managed-process",
            "/managed-process/p",
            "/managed-process/p/logs",
            "/files/list?path=/",
            "/files/stat?path=/",
            "/files?path=/x",
        ] {
            let separator = if path.contains('?') { '&' } else { '?' };
            let target = format!("{session}{path}{separator}{incarnation_query}");
            let response = api.get(&target).await;
            refused(&response, 410, "session_gone");
        }
        for (path, body) in [
            ("", json!({})),
            ("/exec", exec.clone()),
            ("/exec/stream", exec.clone()),
            ("/managed-process", json!({"command": "true"})),
            ("/files/mkdir", json!({"path": "/tmp/x"})),
        ] {
            let response = api
                .post(&format!("{session}{path}?{incarnation_query}"), &body)
                .await;
            refused(&response, 410, "session_gone");
        }
        for path in ["", "/managed-process", "/execs/1", "/files?path=/x"] {
            let separator = if path.contains('?') { '&' } else { '?' };
            let response = api
                .delete(&format!("{session}{path}{separator}{incarnation_query}"))
                .await;
            refused(&response, 410, "session_gone");
        }
        refused(
            &declined(&api, &format!("since=0&{incarnation_query}")).await,
            410,
            "session_gone",
        );
    }
    let (_, response) = api.get(&format!("{session}?{incarnation_query}")).await;
    let message = response["error"]["message"].as_str().expect("a message");
    assert!(message.contains("requested"), "{message}");
    assert_eq!(api.get(session).await.0, 200, "the living one is untouched");
    for wrong in ["", "x", "-1", "1.5", "18446744073709551616"] {
        let answer = api.get(&format!("{session}?incarnation={wrong}")).await;
        refused(&answer, 400, "validation_error");
    }
    let twice = api
        .get(&format!(
            "{session}?{incarnation_query}&{incarnation_query}"
        ))
        .await;
    refused(&twice, 400, "validation_error");
}

#[tokio::test]
async fn a_command_is_resumed_over_sse() {
    let api = Api::start().await;
    let gate = Gate::new();
    let cmd = format!(
        "printf 'a字'; printf '\\345\\255'; {}; printf '\\227b'; echo e >&2; exit 5",
        gate.wait()
    );
    let spec = json!({ "cmd": cmd });
    let request = api
        .request(
            reqwest::Method::POST,
            "/v1/sessions/r/exec/stream?resumable=true",
        )
        .header(header::CONTENT_TYPE, "application/json")
        .body(spec.to_string());
    let mut response = request.send().await.expect("an answer");
    let mut text = String::new();
    while !text.contains("event: stdout") || !text.ends_with("\n\n") {
        let chunk = response.chunk().await.expect("a piece").expect("more");
        text.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
    assert!(text.contains("id: 4-0"), "{text}");
    let started = text
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .expect("data");
    let started: Value = serde_json::from_str(started).expect("JSON");
    let exec_id = started["exec_id"].as_u64().expect("an id");
    drop(response);

    let target = format!("/v1/sessions/r/execs/{exec_id}/stream");
    let resume_after = |last: &str| {
        api.request(reqwest::Method::GET, &target)
            .header("last-event-id", last)
            .send()
    };
    let rest = resume_after("4-0").await.expect("an answer");
    assert_eq!(rest.status(), 200);
    gate.open();
    let rest = rest.text().await.expect("text");
    assert!(rest.contains("event: resumed"), "{rest}");
    assert!(rest.contains("字b"), "{rest}");
    assert!(!rest.contains("a字"), "{rest}");
    assert!(rest.contains("\"exit_code\":5"), "{rest}");
    assert!(rest.contains("id: end"), "{rest}");
    let over = resume_after("end").await.expect("an answer");
    assert_eq!(over.status(), 204, "browsers stop asking");
    let nonsense = resume_after("nonsense").await.expect("an answer");
    assert_eq!(nonsense.status(), 400);
}
