//! Changes complete even if their caller is cancelled, and do not block other servers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::McpStatus;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{FakeServer, Fixture, name, spec_of};
use crate::hosting::HostingError;
use crate::hosting::definitions::store::Stored;

impl Fixture {
    fn deletes_in(&self, seconds: u64) {
        *self.runtime.delete_takes.lock().expect("no panic") = Duration::from_secs(seconds);
    }

    fn is_gone(&self) {
        assert_eq!(self.runtime.names(), [""; 0]);
        for place in ["servers", "secrets", "greetings"] {
            assert_eq!(self.entries(place), 0, "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_removal_completes() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({"name": "time", "command": "well", "env": {"TOKEN": "hunter2"}}))
        .await;
    fixture.until_status(&time, McpStatus::Connected).await;
    fixture.deletes_in(30);
    let removal = fixture.hosting.remove(&time);
    let give_up_fault = tokio::time::timeout(Duration::from_secs(1), removal).await;
    assert!(give_up_fault.is_err());
    tokio::time::sleep(Duration::from_mins(1)).await;
    let gone = fixture.hosting.get(&time);
    assert!(
        matches!(gone, Err(HostingError::NotFound { .. })),
        "{gone:?}"
    );
    fixture.is_gone();
    fixture.deletes_in(0);
    fixture.add_connected("time").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_removal_can_be_repeated() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    // A directory cannot be removed as a file.
    let file = fixture.dir.path().join("mcp/servers/time.json");
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("made");
    let refused = fixture.hosting.remove(&time).await;
    assert!(
        matches!(refused, Err(HostingError::Storage { .. })),
        "{refused:?}"
    );
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Stopped);
    std::fs::remove_dir(&file).expect("removed");
    fixture.hosting.remove(&time).await.expect("removed");
    fixture.is_gone();
}

#[tokio::test(start_paused = true)]
async fn a_server_without_supervisor_can_be_removed() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    fixture.runtime.panics.store(true, Ordering::Relaxed);
    fixture.hosting.restart(&time).await.expect("taken on");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = fixture.hosting.stop(&time).await;
    assert!(matches!(refused, Err(HostingError::Closing)), "{refused:?}");
    fixture.hosting.remove(&time).await.expect("removed");
    fixture.is_gone();
    fixture.runtime.panics.store(false, Ordering::Relaxed);
    fixture.add_connected("time").await;
}

#[tokio::test]
async fn cancelled_edits_and_additions_complete() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let edit = serde_json::from_value(json!({"args": ["--utc"]})).expect("an edit");
    let mut edited = Box::pin(fixture.hosting.edit(&time, edit));
    assert!(futures_util::poll!(&mut edited).is_pending());
    drop(edited);
    fixture
        .until(&time, |runtime| {
            let main = fixture.runtime.process("mcp-time", "main");
            runtime.status == McpStatus::Connected
                && main.is_some_and(|main| main.spec.args == ["--utc"])
        })
        .await;
    let spec = spec_of(json!({"name": "git", "command": "well"}));
    let mut added = Box::pin(fixture.hosting.add(spec, false));
    assert!(futures_util::poll!(&mut added).is_pending());
    drop(added);
    let mut changes = fixture.hosting.changes();
    while fixture.hosting.get(&name("git")).is_err() {
        changes.changed().await.expect("hosting is there");
    }
    fixture
        .until_status(&name("git"), McpStatus::Connected)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_removal_does_not_block_other_servers() {
    let fixture = Fixture::new();
    let slow = fixture.add_connected("slow").await;
    fixture.deletes_in(50);
    let began = Instant::now();
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let other = fixture.add_connected("other").await;
        let edit = serde_json::from_value(json!({"tools": {"deny": ["x"]}})).expect("an edit");
        fixture.hosting.edit(&other, edit).await.expect("edited");
        assert!(began.elapsed() < Duration::from_secs(5));
    };
    let (removed, ()) = tokio::join!(fixture.hosting.remove(&slow), others);
    removed.expect("removed");
    assert!(began.elapsed() >= Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn restarting_a_disabled_server_creates_no_box() {
    let fixture = Fixture::new();
    let slow = FakeServer {
        handshake_delay: Duration::from_secs(20),
        ..FakeServer::default()
    };
    fixture.add_program("slow", slow);
    let slow = fixture
        .add(json!({"name": "slow", "command": "slow"}))
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The definition is replaced before the supervisor is notified.
    let now = Timestamp::now();
    let handle = fixture.hosting.handle(&slow).expect("there");
    handle.state.replace(Stored {
        spec: spec_of(json!({"name": "slow", "command": "slow", "enabled": false})),
        created_at: now,
        updated_at: now,
    });
    let refused = fixture.hosting.restart(&slow).await;
    assert!(
        matches!(refused, Err(HostingError::Disabled { .. })),
        "{refused:?}"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.runtime.created.load(Ordering::Relaxed), 1);
}
