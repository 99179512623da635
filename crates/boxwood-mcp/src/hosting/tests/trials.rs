//! Servers that are only tried out.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpPhase, McpProgress, McpStatus, SessionId, SpecRequest};
use serde_json::json;
use tokio::sync::mpsc;

use super::{Habits, House, spec_of};
use crate::hosting::{Hosting, HostingSettings, Runtime as _};

#[tokio::test(start_paused = true)]
async fn a_test_tells_the_tools_and_its_box_is_gone_afterwards() {
    let house = House::new();
    let spec = spec_of(json!({"name": "time", "command": "well"}));
    let (tell, mut told) = mpsc::channel(64);
    let result = house.hosting.test(spec, tell).await.expect("tested");
    assert!(result.ok);
    assert_eq!(
        (result.runtime.status, result.runtime.tool_count),
        (McpStatus::Connected, 3)
    );
    let session = result.runtime.box_session_id.expect("a box");
    assert!(session.as_str().starts_with("mcp-test-"), "{session}");
    assert_eq!(house.runtime.names(), [""; 0]);
    assert_eq!(house.entries("boxes") + house.entries("work"), 0);
    assert_eq!(house.hosting.list().len(), 0, "it is stored nowhere");
    let mut heard = Vec::new();
    while let Ok(progress) = told.try_recv() {
        heard.push(progress);
    }
    assert!(matches!(
        heard.first(),
        Some(McpProgress::Phase {
            phase: McpPhase::SessionCreate,
            ..
        })
    ));
    assert!(
        matches!(heard.last(), Some(McpProgress::Done { .. })),
        "{heard:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_test_that_fails_says_where_and_why_and_leaves_nothing() {
    let house = House::new();
    let complains = Habits {
        complains: "Traceback: no token hunter2-secret\n",
        ..Habits::living([Some(0)])
    };
    house.knows("fails", complains);
    let spec = json!({"name": "fails", "command": "fails", "env": {"TOKEN": "hunter2-secret"}});
    let (tell, _told) = mpsc::channel(1);
    let result = house
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
    assert_eq!(house.runtime.names(), [""; 0]);
}

fn lines(told: &mut mpsc::Receiver<McpProgress>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(progress) = told.try_recv() {
        if let McpProgress::Output { line } = progress {
            lines.push(line);
        }
    }
    lines
}

#[tokio::test(start_paused = true)]
async fn what_a_server_writes_while_it_is_tried_out_is_told_as_it_comes() {
    let house = House::new();
    let slow = Habits {
        complains: "loading hunter2-secret\nalmost",
        greets_after: Duration::from_secs(20),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let spec = json!({"name": "slow", "command": "slow", "env": {"TOKEN": "hunter2-secret"}});
    let (tell, mut told) = mpsc::channel(64);
    let test = house.hosting.test(spec_of(spec), tell);
    let mut test = Box::pin(test);
    let early = tokio::time::timeout(Duration::from_secs(5), &mut test).await;
    assert!(early.is_err());
    assert_eq!(lines(&mut told), ["loading [TOKEN]"]);
    let result = test.await.expect("tested");
    assert!(result.ok);
    assert_eq!(result.log, "loading [TOKEN]\nalmost");
    assert_eq!(lines(&mut told), ["almost"]);
}

#[tokio::test(start_paused = true)]
async fn a_test_that_waits_for_others_says_so() {
    let house = House::with(|settings| settings.max_tests = 1);
    let slow = Habits {
        greets_after: Duration::from_secs(20),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let test = |tell| {
        let spec = spec_of(json!({"name": "slow", "command": "slow"}));
        house.hosting.test(spec, tell)
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
    assert_eq!(lines(&mut second), ["waiting: other tests are going on"]);
}

#[tokio::test(start_paused = true)]
async fn a_test_that_is_given_up_leaves_nothing() {
    let house = House::new();
    let deaf = Habits {
        deaf_after: Some(Duration::ZERO),
        ..Habits::default()
    };
    house.knows("deaf", deaf);
    let spec = spec_of(json!({"name": "deaf", "command": "deaf"}));
    let (tell, _told) = mpsc::channel(64);
    let test = house.hosting.test(spec, tell);
    assert!(
        tokio::time::timeout(Duration::from_secs(10), test)
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.runtime.names(), [""; 0]);
    assert_eq!(house.entries("boxes"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_daemon_was_testing_goes_and_what_others_call_alike_stays() {
    let house = House::new();
    // A daemon that died has noted its box, and could not remove it.
    let ours = SessionId::new("mcp-test-0b1d").expect("an id");
    let theirs = SessionId::new("mcp-test-1234").expect("an id");
    for session in [&ours, &theirs] {
        let spec = SpecRequest {
            session_id: Some(session.clone()),
            ..SpecRequest::default()
        };
        house
            .runtime
            .create(spec, Vec::new())
            .await
            .expect("created");
    }
    let mcp = house.dir.path().join("mcp");
    std::fs::write(mcp.join("boxes/mcp-test-0b1d"), "").expect("noted");
    std::fs::create_dir(mcp.join("work/mcp-test-0b1d")).expect("a copy");
    std::fs::create_dir(mcp.join("cache/.new-abc")).expect("half an install");
    let runtime = Arc::clone(&house.runtime);
    let hosting = Hosting::new(runtime as _, HostingSettings::new(&mcp)).expect("hosting");
    hosting.begin();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(house.runtime.names(), ["mcp-test-1234"]);
    for place in ["boxes", "work", "cache"] {
        assert_eq!(house.entries(place), 0, "{place}");
    }
}
