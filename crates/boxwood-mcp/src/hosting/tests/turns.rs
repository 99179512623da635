//! Many servers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use boxwood_api::{McpProgress, McpStatus};
use futures_util::StreamExt as _;
use serde_json::json;
use tokio::time::Instant;

use super::{House, name, nothing};

#[tokio::test(start_paused = true)]
async fn fifty_servers_wait_for_their_turn_and_none_times_out_for_it() {
    let house = House::with(|settings| settings.starts_at_once = 2);
    *house.runtime.create_takes.lock().expect("no panic") = Duration::from_secs(4);
    let began = Instant::now();
    for number in 0..50 {
        let spec = json!({
            "name": format!("s{number}"), "command": "well", "box": {"startup_timeout_sec": 5},
        });
        house.add(spec).await;
    }
    let most = Arc::new(AtomicUsize::new(0));
    let last = name("s49");
    assert_eq!(house.runtime_of(&last).status, McpStatus::Queued);
    let mut progress = Box::pin(house.hosting.progress(&last).expect("there"));
    let Some(McpProgress::Waiting { why, until, .. }) = progress.next().await else {
        panic!("it does not say that it is queued");
    };
    assert_eq!(
        (why.as_str(), until),
        ("queued until others have started", None)
    );
    // Whoever calls one that waits is patient too.
    let called = house.hosting.call(&last, "greet", nothing());
    let watched = async {
        loop {
            let all = house.hosting.list();
            let count = |status| {
                all.iter()
                    .filter(|info| info.runtime.status == status)
                    .count()
            };
            most.fetch_max(count(McpStatus::Connecting), Ordering::Relaxed);
            assert_eq!(count(McpStatus::Error), 0);
            if count(McpStatus::Connected) == 50 {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let (called, ()) = tokio::join!(called, watched);
    called.expect("a result");
    assert_eq!(most.load(Ordering::Relaxed), 2);
    let took = began.elapsed().as_secs();
    assert!((100..110).contains(&took), "{took}");
    assert!(
        house
            .hosting
            .list()
            .iter()
            .all(|info| info.runtime.retry_count == 0)
    );
}

#[tokio::test(start_paused = true)]
async fn no_queue_is_too_long_for_whoever_calls_the_last() {
    let house = House::with(|settings| settings.starts_at_once = 1);
    *house.runtime.create_takes.lock().expect("no panic") = Duration::from_mins(1);
    for number in 0..40 {
        let spec = json!({
            "name": format!("s{number}"), "command": "well", "box": {"startup_timeout_sec": 90},
        });
        house.add(spec).await;
    }
    let called = house.hosting.call(&name("s39"), "greet", nothing()).await;
    called.expect("a result, forty minutes later");
}
