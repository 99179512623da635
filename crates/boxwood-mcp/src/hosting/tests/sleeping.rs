//! Servers that nobody calls, and servers that somebody stopped.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpStatus;
use futures_util::StreamExt as _;
use serde_json::json;

use super::{House, nothing};
use crate::hosting::HostingError;

#[tokio::test(start_paused = true)]
async fn a_server_that_nobody_calls_is_stopped_and_the_next_call_starts_it() {
    let house = House::new();
    let time = house
        .add(json!({"name": "time", "command": "well", "idle_stop_sec": 60}))
        .await;
    house.until_status(&time, McpStatus::Connected).await;
    // Pings are no calls, calls are.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        house
            .hosting
            .call(&time, "greet", nothing())
            .await
            .expect("a result");
    }
    assert_eq!(house.runtime_of(&time).status, McpStatus::Connected);
    house.until_status(&time, McpStatus::Stopped).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.runtime.names(), [""; 0], "it costs nothing");
    assert_eq!(
        house.runtime_of(&time).tools.len(),
        3,
        "what it offers is known"
    );
    let result = house.hosting.call(&time, "greet", nothing()).await;
    assert!(result.expect("a result").get().contains("hello"));
    assert_eq!(house.runtime_of(&time).status, McpStatus::Connected);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_keeps_a_server_awake() {
    let house = House::new();
    let time = house
        .add(json!({"name": "time", "command": "well", "idle_stop_sec": 10}))
        .await;
    let arguments = json!({"seconds": 100})
        .as_object()
        .cloned()
        .expect("an object");
    let result = house.hosting.call(&time, "wait", arguments).await;
    assert!(result.expect("a result").get().contains("waited"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_stopped_by_hand_is_only_started_by_hand() {
    let house = House::new();
    let time = house.well("time").await;
    let info = house.hosting.stop(&time).await.expect("stopped");
    assert_eq!(info.runtime.status, McpStatus::Stopped);
    assert_eq!(
        (info.runtime.tool_count, info.runtime.box_session_id),
        (0, None)
    );
    assert_eq!(house.runtime.names(), [""; 0]);
    let refused = house.hosting.call(&time, "greet", nothing()).await;
    assert!(
        matches!(refused, Err(HostingError::Stopped { .. })),
        "{refused:?}"
    );
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(house.runtime_of(&time).status, McpStatus::Stopped);
    house.hosting.start(&time).await.expect("started");
    house.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_makes_a_new_process_and_a_start_of_a_running_one_does_not() {
    let house = House::new();
    let time = house.well("time").await;
    let first = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    house.hosting.start(&time).await.expect("nothing to do");
    assert!(first.is_running());
    let info = house.hosting.restart(&time).await.expect("restarted");
    assert_ne!(info.runtime.status, McpStatus::Connected, "it is under way");
    let progress: Vec<_> = house
        .hosting
        .progress(&time)
        .expect("there")
        .collect()
        .await;
    assert_eq!(
        progress.len(),
        6,
        "the new start alone, and its end: {progress:?}"
    );
    let second = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert!(!first.is_running() && !Arc::ptr_eq(&first, &second));
}
