//! The stdio relay: lines and frames.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::api::{Api, eventually, next_frame, next_text};

const BASE: &str = "/v1/sessions/r/managed-process";
const RELAY: &str = "/v1/sessions/r/managed-process/ws";

async fn with_process(command: &str, args: &[&str]) -> Api {
    let api = Api::start().await;
    api.post("/v1/sessions/r", &json!({})).await;
    let (status, body) = api
        .post(BASE, &json!({"command": command, "args": args}))
        .await;
    assert_eq!(status, 201, "{body}");
    api
}

#[tokio::test]
async fn one_frame_is_one_line_each_way() {
    let api = with_process("cat", &[]).await;
    for path in [RELAY, "/v1/sessions/r/managed-process/default/ws"] {
        let mut socket = api.socket(path).await;
        for (sent, expected) in [
            ("hello", vec!["hello"]),
            ("", vec![""]),
            ("a\nb", vec!["a", "b"]),
            ("crlf\r", vec!["crlf\r"]),
            ("字 \u{1F980}", vec!["字 \u{1F980}"]),
        ] {
            socket.send(Message::text(sent)).await.expect("sent");
            for line in expected {
                assert_eq!(next_text(&mut socket).await.as_deref(), Some(line));
            }
        }
        // Binary frames are ignored.
        socket
            .send(Message::binary(b"x".to_vec()))
            .await
            .expect("sent");
        socket.send(Message::text("after")).await.expect("sent");
        assert_eq!(next_text(&mut socket).await.as_deref(), Some("after"));
        assert_eq!(api.get(BASE).await.1["attached"], true);
        socket.close(None).await.expect("closed");
        eventually("it is let go", || async {
            api.get(BASE).await.1["attached"] == false
        })
        .await;
    }
    assert_eq!(api.get(BASE).await.1["status"], "running");
}

#[tokio::test]
async fn long_lines_pass_whole() {
    let api = with_process("cat", &[]).await;
    let url = format!("ws://{}{RELAY}", api.daemon.address());
    let config = WebSocketConfig::default()
        .max_message_size(Some(64 << 20))
        .max_frame_size(Some(64 << 20));
    let (mut socket, _) = tokio_tungstenite::connect_async_with_config(url, Some(config), false)
        .await
        .expect("an upgrade");
    for size in [70_000, 1 << 20, 8 << 20] {
        let line = "x".repeat(size);
        socket
            .send(Message::text(line.clone()))
            .await
            .expect("sent");
        let got = next_text(&mut socket).await.expect("a line");
        assert_eq!(got.len(), size);
        assert!(got == line);
    }
}

#[tokio::test]
async fn many_lines_may_be_sent_before_output_is_read() {
    let api = with_process("cat", &[]).await;
    let (mut sink, mut stream) = api.socket(RELAY).await.split();
    let lines = 2_000;
    let line = "y".repeat(4_000);
    let sending = async {
        for _ in 0..lines {
            sink.send(Message::text(line.clone())).await.expect("sent");
        }
    };
    let reading = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut got = 0;
        while got < lines {
            if let Message::Text(text) = stream.next().await.expect("open").expect("a frame") {
                assert_eq!(text.len(), 4_000);
                got += 1;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), async {
        tokio::join!(sending, reading)
    })
    .await
    .expect("no deadlock");
}

#[tokio::test]
async fn the_last_line_comes_before_the_end() {
    let api = with_process(
        "sh",
        &["-c", "read x; echo one; printf 'two\\377'; echo err >&2"],
    )
    .await;
    let mut socket = api.socket(RELAY).await;
    socket.send(Message::text("go")).await.expect("sent");
    assert_eq!(next_text(&mut socket).await.as_deref(), Some("one"));
    assert_eq!(next_text(&mut socket).await.as_deref(), Some("two\u{fffd}"));
    assert_eq!(next_frame(&mut socket).await, None);
}

#[tokio::test]
async fn output_waits_for_the_next_client() {
    let api = with_process("sh", &["-c", "for i in 1 2 3; do echo $i; done; exec cat"]).await;
    let mut first = api.socket(RELAY).await;
    assert_eq!(next_text(&mut first).await.as_deref(), Some("1"));
    assert_eq!(next_text(&mut first).await.as_deref(), Some("2"));
    assert_eq!(next_text(&mut first).await.as_deref(), Some("3"));
    first.close(None).await.expect("closed");
    let (status, _) = api
        .post(
            &format!("{BASE}/gone"),
            &json!({"command": "sh", "args": ["-c", "echo unread"]}),
        )
        .await;
    assert_eq!(status, 201);
    let path = format!("{BASE}/gone");
    eventually("it ends", || async {
        api.get(&path).await.1["status"] == "exited"
    })
    .await;
    let mut late = api.socket(&format!("{path}/ws")).await;
    assert_eq!(next_text(&mut late).await.as_deref(), Some("unread"));
    assert_eq!(next_frame(&mut late).await, None);
}

#[tokio::test]
async fn a_second_client_waits_and_its_input_is_kept() {
    let api = with_process("cat", &[]).await;
    let mut first = api.socket(RELAY).await;
    first.send(Message::text("first")).await.expect("sent");
    assert_eq!(next_text(&mut first).await.as_deref(), Some("first"));
    let mut second = api.socket(RELAY).await;
    second.send(Message::text("queued")).await.expect("sent");
    let nothing = tokio::time::timeout(Duration::from_millis(300), second.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    first.send(Message::text("still mine")).await.expect("sent");
    assert_eq!(next_text(&mut first).await.as_deref(), Some("still mine"));
    first.close(None).await.expect("closed");
    assert_eq!(next_text(&mut second).await.as_deref(), Some("queued"));
}

#[tokio::test]
async fn waiting_clients_are_disconnected_when_the_process_stops() {
    let api = with_process("cat", &[]).await;
    let mut first = api.socket(RELAY).await;
    first.send(Message::text("x")).await.expect("sent");
    next_text(&mut first).await.expect("an echo");
    let mut second = api.socket(RELAY).await;
    assert_eq!(api.delete(BASE).await.0, 200);
    assert_eq!(next_frame(&mut first).await, None);
    assert_eq!(next_frame(&mut second).await, None);
}

#[tokio::test]
async fn refusals_come_before_the_upgrade() {
    let api = with_process("true", &[]).await;
    eventually("it ends", || async {
        api.get(BASE).await.1["status"] == "exited"
    })
    .await;
    for (path, status, code) in [
        (
            "/v1/sessions/nope/managed-process/ws",
            404,
            "session_not_found",
        ),
        (
            "/v1/sessions/r/managed-process/nope/ws",
            404,
            "managed_process_not_found",
        ),
        (RELAY, 409, "managed_process_conflict"),
    ] {
        let url = format!("ws://{}{path}", api.daemon.address());
        let error = tokio_tungstenite::connect_async(url)
            .await
            .expect_err("refused");
        let Error::Http(response) = error else {
            panic!("{error}");
        };
        assert_eq!(response.status(), status, "{path}");
        let body = response.body().as_deref().expect("a body");
        let body: serde_json::Value = serde_json::from_slice(body).expect("JSON");
        assert_eq!(body["error"]["code"], code);
    }
}

#[tokio::test]
async fn the_subprotocol_is_selected_on_request() {
    let api = with_process("cat", &[]).await;
    let mut request = format!("ws://{}{RELAY}", api.daemon.address())
        .into_client_request()
        .expect("a request");
    request
        .headers_mut()
        .insert("sec-websocket-protocol", "mcp".parse().expect("a value"));
    let (mut socket, response) = tokio_tungstenite::connect_async(request)
        .await
        .expect("an upgrade");
    assert_eq!(response.headers()["sec-websocket-protocol"], "mcp");
    socket.close(None).await.expect("closed");
    let url = format!("ws://{}{RELAY}", api.daemon.address());
    let (_, response) = tokio_tungstenite::connect_async(url)
        .await
        .expect("an upgrade");
    assert!(response.headers().get("sec-websocket-protocol").is_none());
}

/// A client that has crashed or lost its network: the connection stays open, but the client sends nothing.
#[tokio::test]
async fn a_client_that_does_not_answer_pings_is_detached() {
    let every = std::num::NonZeroU64::MIN;
    let api = Api::start_with(|config| config.http.ping_sec = every).await;
    api.post("/v1/sessions/r", &json!({})).await;
    api.post(BASE, &json!({"command": "cat"})).await;
    let mut dead = tokio::net::TcpStream::connect(api.daemon.address())
        .await
        .expect("a connection");
    let head = format!(
        "GET {RELAY} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    dead.write_all(head.as_bytes()).await.expect("sent");
    eventually("it is attached", || async {
        api.get(BASE).await.1["attached"] == true
    })
    .await;
    // The next client answers pings while it reads, and waits until it is attached.
    let mut next = api.socket(RELAY).await;
    next.send(Message::text("my turn")).await.expect("sent");
    assert_eq!(next_text(&mut next).await.as_deref(), Some("my turn"));
    // A client that answers pings is not detached, even if it sends nothing.
    let listening = async {
        while let Some(frame) = next.next().await {
            let frame = frame.expect("a frame");
            assert!(frame.is_ping(), "{frame:?}");
        }
        panic!("a client that answers pings was disconnected");
    };
    tokio::time::timeout(Duration::from_secs(4), listening)
        .await
        .expect_err("the client stays attached");
    next.send(Message::text("still here")).await.expect("sent");
    assert_eq!(next_text(&mut next).await.as_deref(), Some("still here"));
}

#[tokio::test]
async fn a_client_is_pinged_while_output_is_always_ready() {
    let every = std::num::NonZeroU64::MIN;
    let api = Api::start_with(|config| config.http.ping_sec = every).await;
    api.post("/v1/sessions/r", &json!({})).await;
    let line = "x".repeat(1_000);
    api.post(BASE, &json!({"command": "yes", "args": [line]}))
        .await;
    let mut socket = api.socket(RELAY).await;
    loop {
        let frame = socket.next().await.expect("attached").expect("a frame");
        if frame.is_ping() {
            break;
        }
        assert_eq!(frame.into_text().expect("text").as_str(), line);
    }
}
