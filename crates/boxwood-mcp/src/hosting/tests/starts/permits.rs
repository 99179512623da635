//! Many servers starting at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use boxwood_api::{McpProgress, McpStatus};
use futures_util::StreamExt as _;
use serde_json::json;
use tokio::time::Instant;

use crate::hosting::tests::{Fixture, name, nothing};

#[tokio::test(start_paused = true)]
async fn fifty_servers_wait_for_permits_without_timing_out() {
    let fixture = Fixture::with(|settings| settings.starts_at_once = 2);
    *fixture.runtime.create_takes.lock().expect("no panic") = Duration::from_secs(4);
    let began = Instant::now();
    for number in 0..50 {
        let spec = json!({
            "name": format!("s{number}"), "command": "well", "box": {"startup_timeout_sec": 5},
        });
        fixture.add(spec).await;
    }
    let max_connecting = Arc::new(AtomicUsize::new(0));
    let last = name("s49");
    assert_eq!(fixture.runtime_of(&last).status, McpStatus::Queued);
    let mut progress = Box::pin(fixture.hosting.progress(&last).expect("there"));
    let Some(McpProgress::Waiting { why, until, .. }) = progress.next().await else {
        panic!("it does not say that it is queued");
    };
    assert_eq!(
        (why.as_str(), until),
        ("queued until other servers have started", None)
    );
    // Calls to a queued server wait too.
    let called = fixture.hosting.call(&last, "greet", nothing());
    let watched = async {
        loop {
            let all = fixture.hosting.list();
            let count = |status| {
                all.iter()
                    .filter(|info| info.runtime.status == status)
                    .count()
            };
            max_connecting.fetch_max(count(McpStatus::Connecting), Ordering::Relaxed);
            assert_eq!(count(McpStatus::Error), 0);
            if count(McpStatus::Connected) == 50 {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let (called, ()) = tokio::join!(called, watched);
    called.expect("a result");
    assert_eq!(max_connecting.load(Ordering::Relaxed), 2);
    let took = began.elapsed().as_secs();
    assert!((100..110).contains(&took), "{took}");
    assert!(
        fixture
            .hosting
            .list()
            .iter()
            .all(|info| info.runtime.retry_count == 0)
    );
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_a_queued_server_without_timing_out() {
    let fixture = Fixture::with(|settings| settings.starts_at_once = 1);
    *fixture.runtime.create_takes.lock().expect("no panic") = Duration::from_mins(1);
    for number in 0..40 {
        let spec = json!({
            "name": format!("s{number}"), "command": "well", "box": {"startup_timeout_sec": 90},
        });
        fixture.add(spec).await;
    }
    let called = fixture.hosting.call(&name("s39"), "greet", nothing()).await;
    called.expect("a result, forty minutes later");
}
