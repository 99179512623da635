//! Idle and stopped servers.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpStatus;
use futures_util::StreamExt as _;
use serde_json::json;

use super::{Fixture, nothing};
use crate::hosting::HostingError;

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_stopped_and_started_by_the_next_call() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({"name": "time", "command": "well", "idle_stop_sec": 60}))
        .await;
    fixture.until_status(&time, McpStatus::Connected).await;
    // Calls count as use and pings do not.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        fixture
            .hosting
            .call(&time, "greet", nothing())
            .await
            .expect("a result");
    }
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Connected);
    fixture.until_status(&time, McpStatus::Stopped).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.runtime.names(), [""; 0], "its box is removed");
    assert_eq!(
        fixture.runtime_of(&time).tools.len(),
        3,
        "its tools are still listed"
    );
    let result = fixture.hosting.call(&time, "greet", nothing()).await;
    assert!(result.expect("a result").get().contains("hello"));
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Connected);
}

#[tokio::test(start_paused = true)]
async fn a_long_call_keeps_the_server_running() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({"name": "time", "command": "well", "idle_stop_sec": 10}))
        .await;
    let arguments = json!({"seconds": 100})
        .as_object()
        .cloned()
        .expect("an object");
    let result = fixture.hosting.call(&time, "wait", arguments).await;
    assert!(result.expect("a result").get().contains("waited"));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_is_only_started_explicitly() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let info = fixture.hosting.stop(&time).await.expect("stopped");
    assert_eq!(info.runtime.status, McpStatus::Stopped);
    assert_eq!(
        (info.runtime.tool_count, info.runtime.box_session_id),
        (0, None)
    );
    assert_eq!(fixture.runtime.names(), [""; 0]);
    let refused = fixture.hosting.call(&time, "greet", nothing()).await;
    assert!(
        matches!(refused, Err(HostingError::Stopped { .. })),
        "{refused:?}"
    );
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Stopped);
    fixture.hosting.start(&time).await.expect("started");
    fixture.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_replaces_the_process_and_a_start_does_not() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let first = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    fixture.hosting.start(&time).await.expect("nothing to do");
    assert!(first.is_running());
    let info = fixture.hosting.restart(&time).await.expect("restarted");
    assert_ne!(
        info.runtime.status,
        McpStatus::Connected,
        "it has only begun"
    );
    let progress: Vec<_> = fixture
        .hosting
        .progress(&time)
        .expect("there")
        .collect()
        .await;
    assert_eq!(
        progress.len(),
        6,
        "only the phases of the restart: {progress:?}"
    );
    let second = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert!(!first.is_running() && !Arc::ptr_eq(&first, &second));
}
