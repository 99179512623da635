//! Changes of servers: whole, whoever waits for them, and in nobody else's way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::McpStatus;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{Habits, House, name, spec_of};
use crate::hosting::HostingError;
use crate::hosting::store::Stored;

impl House {
    fn deletes_in(&self, seconds: u64) {
        *self.runtime.delete_takes.lock().expect("no panic") = Duration::from_secs(seconds);
    }

    fn is_gone(&self) {
        assert_eq!(self.runtime.names(), [""; 0]);
        for place in ["servers", "secrets", "greetings", "boxes", "work"] {
            assert_eq!(self.entries(place), 0, "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_nobody_waits_for_is_finished() {
    let house = House::new();
    let time = house
        .add(json!({"name": "time", "command": "well", "env": {"TOKEN": "hunter2"}}))
        .await;
    house.until_status(&time, McpStatus::Connected).await;
    house.deletes_in(30);
    let removal = house.hosting.remove(&time);
    let given_up = tokio::time::timeout(Duration::from_secs(1), removal).await;
    assert!(given_up.is_err());
    tokio::time::sleep(Duration::from_mins(1)).await;
    let gone = house.hosting.get(&time);
    assert!(
        matches!(gone, Err(HostingError::NotFound { .. })),
        "{gone:?}"
    );
    house.is_gone();
    house.deletes_in(0);
    house.well("time").await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_the_disk_refuses_can_be_asked_for_again() {
    let house = House::new();
    let time = house.well("time").await;
    // A directory cannot be removed as a file is.
    let file = house.dir.path().join("mcp/servers/time.json");
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("made");
    let refused = house.hosting.remove(&time).await;
    assert!(
        matches!(refused, Err(HostingError::Storage { .. })),
        "{refused:?}"
    );
    assert_eq!(house.runtime_of(&time).status, McpStatus::Stopped);
    std::fs::remove_dir(&file).expect("removed");
    house.hosting.remove(&time).await.expect("removed");
    house.is_gone();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_nobody_attends_to_any_more_can_be_removed() {
    let house = House::new();
    let time = house.well("time").await;
    house.runtime.panics.store(true, Ordering::Relaxed);
    house.hosting.restart(&time).await.expect("taken on");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = house.hosting.stop(&time).await;
    assert!(matches!(refused, Err(HostingError::Closing)), "{refused:?}");
    house.hosting.remove(&time).await.expect("removed");
    house.is_gone();
    house.runtime.panics.store(false, Ordering::Relaxed);
    house.well("time").await;
}

#[tokio::test]
async fn an_edit_and_an_addition_that_nobody_waits_for_are_finished() {
    let house = House::new();
    let time = house.well("time").await;
    let edit = serde_json::from_value(json!({"args": ["--utc"]})).expect("an edit");
    let mut edited = Box::pin(house.hosting.edit(&time, edit));
    assert!(futures_util::poll!(&mut edited).is_pending());
    drop(edited);
    house
        .until(&time, |runtime| {
            let main = house.runtime.process("mcp-time", "main");
            runtime.status == McpStatus::Connected
                && main.is_some_and(|main| main.spec.args == ["--utc"])
        })
        .await;
    let spec = spec_of(json!({"name": "git", "command": "well"}));
    let mut added = Box::pin(house.hosting.add(spec, false));
    assert!(futures_util::poll!(&mut added).is_pending());
    drop(added);
    let mut changes = house.hosting.changes();
    while house.hosting.get(&name("git")).is_err() {
        changes.changed().await.expect("hosting is there");
    }
    house.until_status(&name("git"), McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_slowly_is_in_the_way_of_no_other() {
    let house = House::new();
    let slow = house.well("slow").await;
    house.deletes_in(50);
    let began = Instant::now();
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let other = house.well("other").await;
        let edit = serde_json::from_value(json!({"tools": {"deny": ["x"]}})).expect("an edit");
        house.hosting.edit(&other, edit).await.expect("edited");
        assert!(began.elapsed() < Duration::from_secs(5));
    };
    let (removed, ()) = tokio::join!(house.hosting.remove(&slow), others);
    removed.expect("removed");
    assert!(began.elapsed() >= Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_a_server_that_was_just_disabled_makes_no_box() {
    let house = House::new();
    let slow = Habits {
        greets_after: Duration::from_secs(20),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let slow = house.add(json!({"name": "slow", "command": "slow"})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The description is another one before anybody is told about it.
    let now = Timestamp::now();
    let seat = house.hosting.seat(&slow).expect("there");
    seat.hosted.replace(Stored {
        spec: spec_of(json!({"name": "slow", "command": "slow", "enabled": false})),
        created_at: now,
        updated_at: now,
    });
    let refused = house.hosting.restart(&slow).await;
    assert!(
        matches!(refused, Err(HostingError::Disabled { .. })),
        "{refused:?}"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(house.runtime.created.load(Ordering::Relaxed), 1);
}
