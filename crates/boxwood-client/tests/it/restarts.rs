//! Connections that break, and the ones that follow them.

use std::time::Duration;

use boxwood_api::{ErrorCode, ProcessId, SessionId, TtySize};
use boxwood_client::{Attached, AttachedEvent, Client, LiveEvent, LiveExec, LiveRequest, Since};
use bytes::Bytes;
use tokio_tungstenite::tungstenite::Message;

use crate::daemon::{Daemon, Peer};

/// A frame of 40 KiB of stdout.
const PIECE: &[u8] = &[1; 40 * 1024 + 1];
const STARTED: &str = r#"{"type":"started","session_id":"s","exec_id":7}"#;
const COUNTED: &str = r#"{"type":"started","session_id":"s","exec_id":7,"stdin":0}"#;
const EXIT: &str = r#"{"type":"exit","exit_code":3,"status":"completed","duration_ms":1}"#;

fn session() -> SessionId {
    SessionId::new("s").expect("an id")
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .expect("an end in time")
}

/// A command that has begun, and the daemon's side of it.
async fn begun(daemon: &Daemon, client: &Client, request: LiveRequest) -> (LiveExec, Peer) {
    let id = session();
    let counted = request.stdin && request.tty.is_none();
    let starting = Box::pin(client.live_exec(&id, request));
    let serving = async {
        let mut peer = daemon.upgrade().await;
        assert_eq!(peer.target, "/v1/sessions/s/exec/ws");
        assert!(matches!(peer.next().await, Message::Text(_)));
        peer.text(if counted { COUNTED } else { STARTED }).await;
        peer
    };
    let (live, peer) = within(async { tokio::join!(starting, serving) }).await;
    (live.expect("started"), peer)
}

fn cat(stdin: bool) -> LiveRequest {
    LiveRequest {
        argv: Some(vec!["cat".to_owned()]),
        stdin,
        ..LiveRequest::default()
    }
}

async fn stdout(live: &mut LiveExec) -> Bytes {
    match within(live.receiver.next()).await.expect("an event") {
        LiveEvent::Stdout(bytes) => bytes,
        other => panic!("not stdout: {other:?}"),
    }
}

#[tokio::test]
async fn output_continues_after_a_reconnect() {
    let (daemon, client) = Daemon::start().await;
    let (mut live, mut peer) = begun(&daemon, &client, cat(false)).await;
    peer.bytes(b"\x01hello").await;
    peer.bytes(b"\x02oh").await;
    assert_eq!(stdout(&mut live).await, "hello");
    assert_eq!(
        within(live.receiver.next()).await.expect("an event"),
        LiveEvent::Stderr(Bytes::from_static(b"oh"))
    );
    drop(peer);
    let mut peer = within(daemon.upgrade()).await;
    assert_eq!(peer.target, "/v1/sessions/s/execs/7/ws?stdout=5&stderr=2");
    peer.text(r#"{"type":"resumed","session_id":"s","exec_id":7,"stdout":5,"stderr":2}"#)
        .await;
    peer.bytes(b"\x01 world").await;
    peer.text(EXIT).await;
    assert_eq!(stdout(&mut live).await, " world");
    let LiveEvent::Exit(exit) = within(live.receiver.next()).await.expect("an event") else {
        panic!("not the end");
    };
    assert_eq!(exit.exit_code, Some(3));
}

#[tokio::test]
async fn unacknowledged_input_is_resent_after_a_reconnect() {
    let (daemon, client) = Daemon::start().await;
    let (mut live, mut peer) = begun(&daemon, &client, cat(true)).await;
    for piece in ["one ", "two ", "three "] {
        within(live.sender.stdin(Bytes::from_static(piece.as_bytes())))
            .await
            .expect("queued");
    }
    assert_eq!(within(peer.input(14)).await, b"one two three ");
    peer.text(r#"{"type":"accepted","stdin":4}"#).await;
    within(live.sender.close_stdin()).await.expect("queued");
    assert!(matches!(within(peer.next()).await, Message::Text(_)));
    drop(peer);
    let mut peer = within(daemon.upgrade()).await;
    // Accepted, although the daemon before this one did not live to say so.
    peer.text(r#"{"type":"resumed","session_id":"s","exec_id":7,"stdout":0,"stderr":0,"stdin":6}"#)
        .await;
    assert_eq!(within(peer.input(8)).await, b"o three ");
    let Message::Text(close) = within(peer.next()).await else {
        panic!("the end of the input is said again");
    };
    assert!(close.contains("close_stdin"), "{close}");
}

#[tokio::test]
async fn uncounted_input_is_not_resent() {
    let (daemon, client) = Daemon::start().await;
    let request = LiveRequest {
        tty: Some(TtySize { rows: 2, cols: 2 }),
        ..cat(true)
    };
    let (mut live, mut peer) = begun(&daemon, &client, request).await;
    within(live.sender.stdin(Bytes::from_static(b"rm x\r")))
        .await
        .expect("queued");
    assert_eq!(within(peer.input(5)).await, b"rm x\r");
    drop(peer);
    let mut peer = within(daemon.upgrade()).await;
    peer.text(r#"{"type":"resumed","session_id":"s","exec_id":7,"stdout":0,"stderr":0}"#)
        .await;
    within(live.sender.stdin(Bytes::from_static(b"ls\r")))
        .await
        .expect("queued");
    assert_eq!(within(peer.input(3)).await, b"ls\r");
}

#[tokio::test]
async fn a_reconnect_to_an_unknown_command_fails() {
    let (daemon, client) = Daemon::start().await;
    let (mut live, peer) = begun(&daemon, &client, cat(false)).await;
    drop(peer);
    let body = r#"{"error":{"code":"session_gone","message":"its box died"}}"#;
    let target = within(daemon.answer("410 Gone", body)).await;
    assert!(target.contains("/execs/7/ws"), "{target}");
    let error = within(live.receiver.next()).await.expect_err("gone");
    assert_eq!(error.code(), ErrorCode::SessionGone);
}

#[tokio::test]
async fn a_stopping_daemon_is_retried() {
    let (daemon, client) = Daemon::start().await;
    let (mut live, peer) = begun(&daemon, &client, cat(false)).await;
    drop(peer);
    let body =
        r#"{"error":{"code":"backend_unavailable","message":"the daemon is shutting down"}}"#;
    within(daemon.answer("503 Service Unavailable", body)).await;
    let mut peer = within(daemon.upgrade()).await;
    peer.text(r#"{"type":"resumed","session_id":"s","exec_id":7,"stdout":0,"stderr":0}"#)
        .await;
    peer.bytes(b"\x01back").await;
    assert_eq!(stdout(&mut live).await, "back");
}

#[tokio::test]
async fn dropping_a_command_kills_it_and_detaching_does_not() {
    let (daemon, client) = Daemon::start().await;
    let (live, mut peer) = begun(&daemon, &client, cat(false)).await;
    drop(live);
    let Message::Text(protocol) = within(peer.next()).await else {
        panic!("a signal comes first");
    };
    assert!(
        protocol.contains("signal") && protocol.contains('9'),
        "{protocol}"
    );

    let (mut live, mut peer) = begun(&daemon, &client, cat(false)).await;
    let detaching = tokio::spawn(async move { live.sender.detach().await });
    assert!(matches!(within(peer.next()).await, Message::Close(_)));
    drop(peer);
    within(detaching).await.expect("detached");
}

#[tokio::test]
async fn a_signal_does_not_wait_behind_input() {
    let (daemon, client) = Daemon::start().await;
    let (live, mut peer) = begun(&daemon, &client, cat(true)).await;
    let LiveExec { mut sender, .. } = live;
    // Far more than may be under way without an acknowledgement.
    let flood = Bytes::from(vec![b'x'; 4 << 20]);
    let stuck = tokio::time::timeout(Duration::from_millis(300), sender.stdin(flood)).await;
    assert!(stuck.is_err(), "nothing was acknowledged");
    let signal = boxwood_api::Signal::parse("INT").expect("a signal");
    within(sender.signal(signal)).await.expect("queued");
    let mut input = 0;
    let protocol = loop {
        match within(peer.next()).await {
            Message::Binary(piece) => input += piece.len(),
            Message::Text(protocol) => break protocol,
            other => panic!("unexpected: {other:?}"),
        }
    };
    assert!(protocol.contains("signal"), "{protocol}");
    assert!(input <= 1 << 20, "{input} bytes were under way");
}

#[tokio::test]
async fn output_is_acknowledged_at_intervals() {
    let (daemon, client) = Daemon::start().await;
    let (mut live, mut peer) = begun(&daemon, &client, cat(false)).await;
    peer.bytes(PIECE).await;
    peer.bytes(PIECE).await;
    for _ in 0..2 {
        assert_eq!(stdout(&mut live).await.len(), 40 * 1024);
    }
    let Message::Text(ack) = within(peer.next()).await else {
        panic!("not an acknowledgement");
    };
    assert!(ack.contains(r#""type":"ack""#), "{ack}");
    assert!(ack.contains("81920"), "{ack}");
}

async fn attached(daemon: &Daemon, client: &Client) -> (Attached, Peer) {
    let (id, process) = (session(), ProcessId::default());
    let attaching = Box::pin(client.attach_from(&id, &process, Since::Now));
    let serving = async {
        assert_eq!(
            daemon.answer("200 OK", include_str!("session.json")).await,
            "/v1/sessions/s"
        );
        let mut peer = daemon.upgrade().await;
        assert_eq!(
            peer.target,
            "/v1/sessions/s/managed-process/default/ws?since=now&incarnation=42"
        );
        peer.text(r#"{"stdout":100,"stdin":10,"started_at":"2026-06-09T11:30:17Z"}"#)
            .await;
        peer
    };
    let (attached, peer) = within(async { tokio::join!(attaching, serving) }).await;
    (attached.expect("attached"), peer)
}

#[tokio::test]
async fn an_attachment_resumes_in_both_directions() {
    let (daemon, client) = Daemon::start().await;
    let (mut attached, mut peer) = attached(&daemon, &client).await;
    assert_eq!(attached.stdout, 100);
    within(attached.sender.stdin(Bytes::from_static(b"ping\n")))
        .await
        .expect("queued");
    assert_eq!(within(peer.input(5)).await, b"ping\n");
    peer.bytes(b"pon").await;
    let event = within(attached.receiver.next()).await.expect("an event");
    assert_eq!(event, AttachedEvent::Stdout(Bytes::from_static(b"pon")));
    drop(peer);
    let mut peer = within(daemon.upgrade()).await;
    assert_eq!(
        peer.target,
        "/v1/sessions/s/managed-process/default/ws?since=103&incarnation=42"
    );
    peer.text(r#"{"stdout":103,"stdin":12,"started_at":"2026-06-09T11:30:17Z"}"#)
        .await;
    assert_eq!(within(peer.input(3)).await, b"ng\n");
    peer.text(r#"{"stdin":15}"#).await;
    peer.bytes(b"g\n").await;
    let exited = r#"{"exited":{"exit_code":0,"exited_at":"2026-06-09T11:31:17Z"}}"#;
    peer.text(exited).await;
    let event = within(attached.receiver.next()).await.expect("an event");
    assert_eq!(event, AttachedEvent::Stdout(Bytes::from_static(b"g\n")));
    let AttachedEvent::Exit(exit) = within(attached.receiver.next()).await.expect("an event")
    else {
        panic!("not the end");
    };
    assert_eq!(exit.exit_code, Some(0));
}

#[tokio::test]
async fn a_replaced_process_gets_no_resent_input() {
    let (daemon, client) = Daemon::start().await;
    let (mut attached, mut peer) = attached(&daemon, &client).await;
    within(attached.sender.stdin(Bytes::from_static(b"secret\n")))
        .await
        .expect("queued");
    assert_eq!(within(peer.input(7)).await, b"secret\n");
    drop(peer);
    let mut peer = within(daemon.upgrade()).await;
    peer.text(r#"{"stdout":100,"stdin":0,"started_at":"2026-06-09T11:59:00Z"}"#)
        .await;
    let error = within(attached.receiver.next())
        .await
        .expect_err("replaced");
    assert_eq!(error.code(), ErrorCode::ManagedProcessConflict);
}

#[tokio::test]
async fn a_superseded_client_does_not_reconnect() {
    let (daemon, client) = Daemon::start().await;
    let (mut live, mut peer) = begun(&daemon, &client, cat(false)).await;
    peer.text(r#"{"type":"error","error":{"code":"session_conflict","message":"another"}}"#)
        .await;
    peer.close(4409).await;
    let error = within(live.receiver.next()).await.expect_err("sent away");
    assert_eq!(error.code(), ErrorCode::SessionConflict);
    let again = tokio::time::timeout(Duration::from_millis(300), daemon.upgrade()).await;
    assert!(again.is_err(), "it came back");
}

#[tokio::test]
async fn input_after_the_end_of_stdin_is_discarded() {
    let (daemon, client) = Daemon::start().await;
    let (mut live, mut peer) = begun(&daemon, &client, cat(true)).await;
    let reading = tokio::spawn(async move {
        peer.text(r#"{"type":"stdin_closed"}"#).await;
        peer.input(4 << 20).await
    });
    within(live.sender.stdin(Bytes::from(vec![b'x'; 4 << 20])))
        .await
        .expect("discarded");
    assert_eq!(within(reading).await.expect("no panic").len(), 4 << 20);
}
