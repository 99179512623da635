//! Tests of definitions that are not stored.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpPhase, McpProgress, McpStatus, SpecRequest};
use serde_json::json;
use tokio::sync::mpsc;

use super::{FakeServer, Fixture, settings_in, spec_of};
use crate::hosting::boxes::ids;
use crate::hosting::{Hosting, Runtime as _};

#[tokio::test(start_paused = true)]
async fn a_test_lists_tools_and_removes_its_box() {
    let fixture = Fixture::new();
    let spec = spec_of(json!({"name": "time", "command": "well"}));
    let (tell, mut receiver) = mpsc::channel(64);
    let result = fixture.hosting.test(spec, tell).await.expect("tested");
    assert!(result.ok);
    assert_eq!(
        (result.runtime.status, result.runtime.tool_count),
        (McpStatus::Connected, 3)
    );
    let session = result.runtime.box_session_id.expect("a box");
    assert!(session.as_str().starts_with("mcp-test-"), "{session}");
    assert_eq!(fixture.runtime.names(), [""; 0]);
    assert_eq!(fixture.runtime.names().len(), 0);
    assert_eq!(fixture.hosting.list().len(), 0, "it is stored nowhere");
    let mut events = Vec::new();
    while let Ok(progress) = receiver.try_recv() {
        events.push(progress);
    }
    assert!(matches!(
        events.first(),
        Some(McpProgress::Phase {
            phase: McpPhase::SessionCreate,
            ..
        })
    ));
    assert!(
        matches!(events.last(), Some(McpProgress::Done { .. })),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_test_reports_the_phase_and_removes_its_box() {
    let fixture = Fixture::new();
    let startup_stderr = FakeServer {
        startup_stderr: "Traceback: no token hunter2-secret\n",
        ..FakeServer::with_lifetimes([Some(0)])
    };
    fixture.add_program("fails", startup_stderr);
    let spec = json!({"name": "fails", "command": "fails", "env": {"TOKEN": "hunter2-secret"}});
    let (tell, _told) = mpsc::channel(1);
    let result = fixture
        .hosting
        .test(spec_of(spec), tell)
        .await
        .expect("tested");
    assert!(!result.ok);
    assert_eq!(result.runtime.error_phase, Some(McpPhase::McpInit));
    assert_eq!(result.log, "Traceback: no token [TOKEN]\n");
    let message = result.runtime.error_message.expect("a message");
    assert!(
        message.contains("[TOKEN]") && !message.contains("hunter2"),
        "{message}"
    );
    assert_eq!(fixture.runtime.names(), [""; 0]);
}

fn lines(receiver: &mut mpsc::Receiver<McpProgress>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(progress) = receiver.try_recv() {
        if let McpProgress::Output { line } = progress {
            lines.push(line);
        }
    }
    lines
}

#[tokio::test(start_paused = true)]
async fn stderr_is_reported_at_the_end_of_a_test() {
    let fixture = Fixture::new();
    let slow = FakeServer {
        startup_stderr: "loading hunter2-secret\nalmost",
        handshake_delay: Duration::from_secs(20),
        ..FakeServer::default()
    };
    fixture.add_program("slow", slow);
    let spec = json!({"name": "slow", "command": "slow", "env": {"TOKEN": "hunter2-secret"}});
    let (tell, mut receiver) = mpsc::channel(64);
    let result = fixture.hosting.test(spec_of(spec), tell).await;
    let result = result.expect("tested");
    assert!(result.ok);
    assert_eq!(result.log, "loading [TOKEN]\nalmost");
    assert_eq!(lines(&mut receiver), ["loading [TOKEN]", "almost"]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_test_reports_it() {
    let fixture = Fixture::with(|settings| settings.max_tests = 1);
    let slow = FakeServer {
        handshake_delay: Duration::from_secs(20),
        ..FakeServer::default()
    };
    fixture.add_program("slow", slow);
    let test = |tell| {
        let spec = spec_of(json!({"name": "slow", "command": "slow"}));
        fixture.hosting.test(spec, tell)
    };
    let (tell, mut first) = mpsc::channel(64);
    let one = test(tell);
    let (tell, mut second) = mpsc::channel(64);
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        test(tell).await
    };
    let (one, other) = tokio::join!(one, other);
    assert!(one.expect("tested").ok && other.expect("tested").ok);
    assert_eq!(lines(&mut first), [""; 0]);
    assert_eq!(lines(&mut second), ["waiting: other tests are running"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_test_removes_its_box() {
    let fixture = Fixture::new();
    let unresponsive = FakeServer {
        stops_responding_after: Some(Duration::ZERO),
        ..FakeServer::default()
    };
    fixture.add_program("deaf", unresponsive);
    let spec = spec_of(json!({"name": "deaf", "command": "deaf"}));
    let (tell, _told) = mpsc::channel(64);
    let test = fixture.hosting.test(spec, tell);
    assert!(
        tokio::time::timeout(Duration::from_secs(10), test)
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.runtime.names(), [""; 0]);
    assert_eq!(fixture.runtime.names().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn leftover_tests_are_removed() {
    let fixture = Fixture::new();
    // Left by a daemon that crashed.
    let spec = SpecRequest {
        session_id: Some(ids::test_session()),
        ..SpecRequest::default()
    };
    let created = fixture.runtime.create(spec, Vec::new()).await;
    created.expect("created");
    let mcp = fixture.dir.path().join("mcp");
    std::fs::create_dir(mcp.join("cache/.new-abc")).expect("half an install");
    let runtime = Arc::clone(&fixture.runtime);
    let hosting = Hosting::new(runtime as _, settings_in(fixture.dir.path())).expect("hosting");
    hosting.begin();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.runtime.names(), [""; 0]);
    assert_eq!(fixture.entries("cache"), 0);
}
