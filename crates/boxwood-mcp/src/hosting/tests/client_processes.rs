//! Processes besides the main one.

use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;

use super::{FakeServer, Fixture};
use crate::hosting::HostingError;
use crate::wire::{CallError, CallOptions, CloseReason, InboundEvent, Message, Protocol};

fn initialize() -> Box<RawValue> {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "editor", "version": "1"},
    });
    RawValue::from_string(params.to_string()).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_client_with_capabilities_gets_its_own_process() {
    let fixture = Fixture::new();
    let asks = FakeServer {
        asks_for_roots: true,
        ..FakeServer::default()
    };
    fixture.add_program("asks", asks);
    let asks = fixture
        .add(json!({"name": "asks", "command": "asks"}))
        .await;
    let server = fixture.hosting.server(&asks).await.expect("a server");
    let mut child = server.client_process(initialize()).await.expect("a child");
    assert_eq!(child.handshake.protocol_version, "2025-06-18");
    let InboundEvent::Message(question) = child.inbound.next().await else {
        panic!("it asked nothing");
    };
    assert_eq!(question.method(), Some("roots/list"));
    let id = question.id().expect("an id").to_owned();
    let roots = RawValue::from_string("{\"roots\":[]}".to_owned()).expect("JSON");
    let answer = Message::result(id, roots);
    child.connection.respond(answer).await.expect("answered");
    assert_eq!(fixture.runtime.running("mcp-asks").len(), 2);
    drop(child);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.runtime.running("mcp-asks"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn stderr_of_a_client_process_is_shown() {
    let fixture = Fixture::new();
    let startup_stderr = FakeServer {
        // The main process keeps running. The first client process exits before the handshake.
        lifetimes: vec![None, Some(Duration::from_secs(1)), None],
        slow_runs: vec![1],
        handshake_delay: Duration::from_secs(5),
        startup_stderr: "the key sesame-open is not known\n",
        ..FakeServer::default()
    };
    fixture.add_program("complains", startup_stderr);
    let spec = json!({"name": "c", "command": "complains", "env": {"KEY": "sesame-open"}});
    let name = fixture.add(spec).await;
    let server = fixture.hosting.server(&name).await.expect("a server");
    let refused = server
        .client_process(initialize())
        .await
        .err()
        .expect("it ended");
    let words = refused.to_string();
    assert!(words.contains("is not known"), "{words}");
    assert!(!words.contains("sesame-open"), "{words}");
    let child = server.client_process(initialize()).await.expect("a child");
    let shown = async || {
        let logs = fixture.hosting.logs(&name).await.expect("logs");
        assert!(!logs.stderr.contains("sesame-open"), "{}", logs.stderr);
        let own = logs.stderr.matches("--- own-").count();
        (own, logs.stderr.matches("is not known").count())
    };
    assert_eq!(shown().await, (2, 3));
    drop(child);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.runtime.running("mcp-c"), ["main"]);
    assert_eq!(shown().await, (2, 3), "it is shown when they are gone, too");
}

#[tokio::test(start_paused = true)]
async fn child_processes_are_limited_and_stopped_when_idle() {
    let fixture = Fixture::with(|settings| settings.max_children = 2);
    let time = fixture.add_connected("time").await;
    let server = fixture.hosting.server(&time).await.expect("a server");
    let first = server.client_process(initialize()).await.expect("a child");
    let second = server.client_process(initialize()).await.expect("a child");
    let refused = server
        .client_process(initialize())
        .await
        .err()
        .expect("no room");
    assert!(matches!(refused, HostingError::Full { .. }), "{refused:?}");
    // One is used, the other is idle.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(100)).await;
        let ask = CallOptions::with_timeout(Duration::from_secs(5));
        first
            .connection
            .request("ping", None, ask)
            .await
            .expect("an answer");
    }
    assert!(!first.connection.is_ended());
    assert!(second.connection.is_ended());
    assert_eq!(fixture.runtime.running("mcp-time").len(), 2);
    server
        .client_process(initialize())
        .await
        .expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_child_start_is_stopped() {
    let fixture = Fixture::new();
    let slow = FakeServer {
        handshake_delay: Duration::from_secs(20),
        ..FakeServer::default()
    };
    fixture.add_program("slow", slow);
    let slow = fixture
        .add(json!({"name": "slow", "command": "slow"}))
        .await;
    let server = fixture.hosting.server(&slow).await.expect("a server");
    let give_up_fault =
        tokio::time::timeout(Duration::from_secs(5), server.client_process(initialize())).await;
    assert!(give_up_fault.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.runtime.running("mcp-slow"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn modern_clients_share_one_process() {
    let fixture = Fixture::new();
    let both = FakeServer {
        is_modern: true,
        ..FakeServer::default()
    };
    fixture.add_program("both", both);
    let both = fixture
        .add(json!({"name": "both", "command": "both"}))
        .await;
    let server = fixture.hosting.server(&both).await.expect("a server");
    assert_eq!(
        server.handshake().protocol,
        Protocol::Legacy,
        "every real server knows `initialize`"
    );
    let (first, second) = tokio::join!(server.modern(), server.modern());
    let (first, handshake) = first.expect("asked").expect("it knows");
    let (second, _) = second.expect("asked").expect("it knows");
    assert_eq!(handshake.protocol, Protocol::Modern);
    assert_eq!(first.id(), second.id(), "they share it");
    let running = fixture.runtime.running("mcp-both");
    assert!(
        running.len() == 2 && running[1].starts_with("modern-"),
        "{running:?}"
    );
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        fixture.runtime.running("mcp-both"),
        ["main"],
        "it received nothing"
    );
    server
        .modern()
        .await
        .expect("asked")
        .expect("it is started again");
}

#[tokio::test(start_paused = true)]
async fn a_hung_modern_process_is_replaced() {
    let fixture = Fixture::new();
    let hangs = FakeServer {
        is_modern: true,
        stops_responding_after: Some(Duration::from_secs(10)),
        // The first modern process.
        unresponsive_run: Some(1),
        ..FakeServer::default()
    };
    fixture.add_program("hangs", hangs);
    let hangs = fixture
        .add(json!({"name": "hangs", "command": "hangs"}))
        .await;
    let server = fixture.hosting.server(&hangs).await.expect("a server");
    let modern = async || server.modern().await.expect("asked").expect("it knows").0;
    let first = modern().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let hour = CallOptions::with_timeout(Duration::from_hours(1));
    let late = first.request("tools/list", None, hour.clone()).await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })), "{late:?}");
    assert!(!first.is_ended(), "it may have been at work");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(first.is_ended(), "nothing was heard of it");
    let next = modern().await;
    next.request("tools/list", None, hour)
        .await
        .expect("a list");
    tokio::time::sleep(Duration::from_mins(2)).await;
    let running = fixture.runtime.running("mcp-hangs");
    assert!(
        running.len() == 2 && running[1].starts_with("modern-"),
        "{running:?}"
    );
    assert!(!server.main().is_ended(), "the others never noticed");
}

#[tokio::test(start_paused = true)]
async fn a_hung_client_process_is_closed() {
    let fixture = Fixture::new();
    let hangs = FakeServer {
        stops_responding_after: Some(Duration::from_secs(10)),
        // The first child process.
        unresponsive_run: Some(1),
        ..FakeServer::default()
    };
    fixture.add_program("hangs", hangs);
    let hangs = fixture
        .add(json!({"name": "hangs", "command": "hangs"}))
        .await;
    let server = fixture.hosting.server(&hangs).await.expect("a server");
    let first = server.client_process(initialize()).await.expect("a child");
    let second = server.client_process(initialize()).await.expect("a child");
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert!(first.connection.is_ended(), "nothing was heard of it");
    assert!(!second.connection.is_ended() && !server.main().is_ended());
}

#[tokio::test(start_paused = true)]
async fn a_client_process_with_blocked_stdin_fails_the_call() {
    let fixture = Fixture::new();
    let closes = FakeServer {
        closes_input_after: Some(Duration::from_secs(10)),
        ..FakeServer::default()
    };
    fixture.add_program("closes", closes);
    let closes = fixture
        .add(json!({"name": "closes", "command": "closes"}))
        .await;
    let server = fixture.hosting.server(&closes).await.expect("a server");
    let child = server.client_process(initialize()).await.expect("a child");
    let params = json!({"name": "wait", "arguments": {"seconds": 100_000}});
    let params = RawValue::from_string(params.to_string()).expect("JSON");
    let hour = CallOptions::with_timeout(Duration::from_hours(1));
    let asked = child.connection.request("tools/call", Some(params), hour);
    let ended = asked.await;
    assert!(
        matches!(
            ended,
            Err(CallError::Closed(CloseReason::InputClosed { .. }))
        ),
        "{ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_discovery_timeout_means_a_legacy_server() {
    let fixture = Fixture::new();
    let silent = FakeServer {
        is_modern: true,
        ignores_discover: usize::MAX,
        ..FakeServer::default()
    };
    let runs = silent.runs.clone();
    fixture.add_program("silent", silent);
    let silent = fixture
        .add(json!({"name": "silent", "command": "silent"}))
        .await;
    let server = fixture.hosting.server(&silent).await.expect("a server");
    for _ in 0..10 {
        assert!(server.modern().await.expect("asked").is_none());
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn without_modern_process_the_main_one_serves_modern_clients() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let server = fixture.hosting.server(&time).await.expect("a server");
    fixture
        .runtime
        .attach_fails
        .store(1, std::sync::atomic::Ordering::Relaxed);
    assert!(server.modern().await.expect("no error").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_is_discovered_once() {
    let fixture = Fixture::new();
    let old = FakeServer::default();
    let runs = old.runs.clone();
    fixture.add_program("old", old);
    let old = fixture.add(json!({"name": "old", "command": "old"})).await;
    let server = fixture.hosting.server(&old).await.expect("a server");
    for _ in 0..3 {
        assert!(server.modern().await.expect("asked").is_none());
    }
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.runtime.running("mcp-old"), ["main"]);
}
