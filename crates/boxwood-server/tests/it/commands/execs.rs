//! Commands that run without their client, and those that are remembered.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::api::{Api, Socket, eventually, next_frame, refused};

const WS: &str = "/v1/sessions/e/exec/ws";
const EXECS: &str = "/v1/sessions/e/execs";

async fn start(api: &Api, mut frame: Value) -> (Socket, u64) {
    let mut socket = api.socket(WS).await;
    frame["type"] = "start".into();
    frame["resumable"] = true.into();
    let message = Message::text(frame.to_string());
    socket.send(message).await.expect("sent");
    let hello = text(&mut socket).await;
    assert_eq!(hello["type"], "started", "{hello}");
    let exec_id = hello["exec_id"].as_u64().expect("an id");
    (socket, exec_id)
}

async fn text(socket: &mut Socket) -> Value {
    match next_frame(socket).await.expect("a frame") {
        Message::Text(text) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("not text: {other:?}"),
    }
}

/// Output of the first channel until there is so much of it.
async fn stdout(socket: &mut Socket, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        match next_frame(socket).await.expect("a frame") {
            Message::Binary(bytes) if bytes[0] == 1 => all.extend_from_slice(&bytes[1..]),
            Message::Binary(_) | Message::Text(_) => {}
            other => panic!("{other:?}"),
        }
    }
    all
}

async fn resume(api: &Api, exec_id: u64, query: &str) -> (Socket, Value) {
    let mut socket = api.socket(&format!("{EXECS}/{exec_id}/ws{query}")).await;
    let hello = text(&mut socket).await;
    assert_eq!(hello["type"], "resumed", "{hello}");
    assert_eq!(hello["exec_id"], exec_id);
    (socket, hello)
}

async fn exit(socket: &mut Socket) -> Value {
    loop {
        let frame = match next_frame(socket).await.expect("a frame") {
            Message::Text(text) => serde_json::from_str::<Value>(&text).expect("JSON"),
            _ => continue,
        };
        if frame["type"] == "exit" {
            return frame;
        }
    }
}

#[tokio::test]
async fn a_command_runs_on_without_its_client_and_can_be_resumed() {
    let api = Api::start().await;
    let spec = json!({"spec": {"cmd": "printf one; read line; printf \"two $line\"; exit 6"}, "stdin": true});
    let (mut socket, exec_id) = start(&api, spec).await;
    assert_eq!(stdout(&mut socket, 3).await, b"one");
    let message = Message::binary(b"li".to_vec());
    socket.send(message).await.expect("sent");
    let accepted = text(&mut socket).await;
    assert_eq!(accepted, json!({"type": "accepted", "stdin": 2}));
    drop(socket);

    let (_, listed) = api.get(EXECS).await;
    let info = &listed.as_array().expect("a list")[0];
    assert_eq!(info["exec_id"], exec_id);
    assert_eq!(info["state"], "running");
    assert_eq!(info["kind"], "live");
    assert_eq!(info["resumable"], true);
    let command = info["command"].as_str().expect("a command");
    assert!(command.contains("printf one"), "{command}");
    let (_, detail) = api.get("/v1/sessions/e").await;
    assert_eq!(detail["execs"][0]["exec_id"], exec_id, "{detail}");

    let (mut socket, hello) = resume(&api, exec_id, "?stdout=1&stderr=0").await;
    assert_eq!((&hello["stdout"], &hello["stdin"]), (&json!(1), &json!(2)));
    assert_eq!(stdout(&mut socket, 2).await, b"ne");
    let message = Message::binary(b"ne\n".to_vec());
    socket.send(message).await.expect("sent");
    assert_eq!(stdout(&mut socket, 8).await, b"two line");
    assert_eq!(exit(&mut socket).await["exit_code"], 6);

    let (status, detail) = api.get(&format!("{EXECS}/{exec_id}")).await;
    assert_eq!(status, 200);
    assert_eq!(detail["state"], "ended");
    assert_eq!(detail["exit"]["exit_code"], 6);
    assert_eq!(detail["result"]["stdout"], "onetwo line");
    // Once more, from the start.
    let (mut socket, _) = resume(&api, exec_id, "?stdout=0").await;
    assert_eq!(stdout(&mut socket, 11).await, b"onetwo line");
    assert_eq!(exit(&mut socket).await["exit_code"], 6);
}

#[tokio::test]
async fn a_later_client_replaces_the_attached_one() {
    let api = Api::start().await;
    let spec = json!({"spec": {"cmd": "cat"}, "stdin": true});
    let (mut first, exec_id) = start(&api, spec).await;
    let (mut second, _) = resume(&api, exec_id, "").await;
    let error_frame = text(&mut first).await;
    assert_eq!(
        error_frame["error"]["code"], "session_conflict",
        "{error_frame}"
    );
    let close = loop {
        let frame = first.next().await.expect("a frame").expect("no error");
        if let Message::Close(frame) = frame {
            break frame.expect("a code");
        }
    };
    assert_eq!(u16::from(close.code), 4409);
    let message = Message::binary(b"hi".to_vec());
    second.send(message).await.expect("sent");
    assert_eq!(stdout(&mut second, 2).await, b"hi");
    let message = Message::text(json!({"type": "close_stdin"}).to_string());
    second.send(message).await.expect("sent");
    assert_eq!(exit(&mut second).await["exit_code"], 0);
}

#[tokio::test]
async fn a_command_without_a_client_can_be_killed() {
    let api = Api::start().await;
    let (socket, exec_id) = start(&api, json!({"spec": {"cmd": "sleep 60 & sleep 60"}})).await;
    drop(socket);
    let path = format!("{EXECS}/{exec_id}");
    let (status, body) = api.delete(&path).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body, json!({"killed": exec_id}));
    eventually("it is told to have ended", || async {
        api.get(&path).await.1["state"] == "ended"
    })
    .await;
}

#[tokio::test]
async fn a_plain_command_is_listed_while_it_runs() {
    let api = Api::start().await;
    api.post("/v1/sessions/e", &json!({})).await;
    let running = api.request(reqwest::Method::POST, "/v1/sessions/e/exec");
    let running = running
        .header("content-type", "application/json")
        .body(json!({"cmd": "sleep 60"}).to_string())
        .send();
    let running = tokio::spawn(running);
    eventually("it is listed", || async {
        api.get(EXECS).await.1[0]["kind"] == "captured"
    })
    .await;
    let exec_id = api.get(EXECS).await.1[0]["exec_id"]
        .as_u64()
        .expect("an id");
    let (status, _) = api.delete(&format!("{EXECS}/{exec_id}")).await;
    assert_eq!(status, 200);
    let answer = tokio::time::timeout(Duration::from_secs(10), running).await;
    let answer = answer
        .expect("it ends")
        .expect("no panic")
        .expect("an answer");
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn unknown_commands_are_not_found_and_invalid_requests_refused() {
    let api = Api::start().await;
    refused(&api.get(EXECS).await, 404, "session_not_found");
    api.post("/v1/sessions/e", &json!({})).await;
    assert_eq!(api.get(EXECS).await.1, json!([]));
    refused(&api.get(&format!("{EXECS}/7")).await, 404, "not_found");
    refused(&api.delete(&format!("{EXECS}/7")).await, 404, "not_found");
    let stream = format!("{EXECS}/7/stream");
    refused(&api.get(&stream).await, 404, "not_found");
    for wrong in ["x", "-1", "1.5"] {
        let answer = api.get(&format!("{EXECS}/{wrong}")).await;
        refused(&answer, 400, "validation_error");
    }
    for wrong in ["stdout=x", "stderr=-1", "nope=1"] {
        let answer = api.get(&format!("{stream}?{wrong}")).await;
        refused(&answer, 400, "validation_error");
    }
    let no_upgrade = api.get(&format!("{EXECS}/7/ws")).await;
    refused(&no_upgrade, 400, "validation_error");
}
