//! Servers survive a daemon restart and a lost connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerName, McpStatus};
use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::program::Process;
use super::{FakeServer, Fixture, nothing, settings_in, spec_of};
use crate::hosting::definitions::store::Stored;
use crate::hosting::supervisor::run_record::fingerprint;
use crate::hosting::{BoxAvailability, Hosting};

impl Fixture {
    /// Ends this daemon and starts another.
    async fn daemon_restarts(self) -> Self {
        self.hosting.close().await;
        let settings = settings_in(self.dir.path());
        let hosting = Hosting::new(Arc::clone(&self.runtime) as _, settings).expect("hosting");
        hosting.begin();
        Self { hosting, ..self }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_daemon_adopts_a_running_server() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let server = fixture.hosting.connected(&time).expect("connected");
    let params = RawValue::from_string("{\"protocolVersion\":\"2025-11-25\"}".to_owned());
    // The client stays connected until the daemon ends.
    let _child = server
        .client_process(params.expect("JSON"))
        .await
        .expect("a child");
    let main = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert_eq!(fixture.runtime.running("mcp-time").len(), 2);
    let fixture = fixture.daemon_restarts().await;
    let runtime = fixture.until_status(&time, McpStatus::Connected).await;
    let now = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert!(
        Arc::ptr_eq(&main, &now) && main.is_running(),
        "it is the same process"
    );
    assert_eq!(
        fixture.runtime.running("mcp-time"),
        ["main"],
        "its children went with their clients"
    );
    assert_eq!(runtime.tool_count, 3);
    let phases: Vec<_> = runtime.steps.iter().map(|step| step.phase).collect();
    assert_eq!(phases, [McpPhase::RelayConnect, McpPhase::Runtime]);
    fixture
        .hosting
        .call(&time, "greet", nothing())
        .await
        .expect("a result");
}

#[tokio::test(start_paused = true)]
async fn notices_survive_adoption() {
    let fixture = Fixture::new();
    let locked = "network is locked to off by profile `tight`; on was asked for";
    *fixture.runtime.notices.lock().expect("no panic") = vec![locked.to_owned()];
    let time = fixture.add_connected("time").await;
    assert_eq!(fixture.runtime_of(&time).notices, [locked]);
    let fixture = fixture.daemon_restarts().await;
    let runtime = fixture.until_status(&time, McpStatus::Connected).await;
    assert_eq!(runtime.notices, [locked]);
    fixture.runtime.notices.lock().expect("no panic").clear();
    fixture.hosting.restart(&time).await.expect("restarted");
    let runtime = fixture.until_status(&time, McpStatus::Connected).await;
    assert_eq!(runtime.notices, [""; 0], "those of the last start");
}

#[tokio::test(start_paused = true)]
async fn a_new_daemon_starts_missing_servers_and_removes_disabled_ones() {
    let fixture = Fixture::new();
    let ended = fixture.add_connected("ended").await;
    let disabled = fixture.add_connected("disabled").await;
    let changed = fixture.add_connected("changed").await;
    fixture.hosting.close().await;
    fixture
        .runtime
        .process("mcp-ended", "main")
        .expect("a process")
        .kill
        .cancel();
    let before = fixture
        .runtime
        .process("mcp-changed", "main")
        .expect("a process");
    let edit = |server: &str, key: &str, value: serde_json::Value| {
        let path = fixture
            .dir
            .path()
            .join(format!("mcp/servers/{server}.json"));
        let text = std::fs::read(&path).expect("a file");
        let mut file: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        file["spec"][key] = value;
        std::fs::write(&path, file.to_string()).expect("written");
    };
    edit("disabled", "enabled", json!(false));
    edit("changed", "args", json!(["--other"]));
    let fixture = fixture.daemon_restarts().await;
    fixture.until_status(&ended, McpStatus::Connected).await;
    fixture.until_status(&changed, McpStatus::Connected).await;
    assert!(!before.is_running(), "it was another server");
    assert_eq!(fixture.runtime_of(&disabled).status, McpStatus::Disabled);
    assert_eq!(fixture.runtime.names(), ["mcp-changed", "mcp-ended"]);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_server_that_hangs_is_restarted() {
    let fixture = Fixture::new();
    let fake_server = FakeServer {
        stops_responding_after: Some(Duration::from_secs(10)),
        ..FakeServer::default()
    };
    fixture.add_program("deafens", fake_server);
    let deafens = fixture
        .add(json!({"name": "deafens", "command": "deafens"}))
        .await;
    fixture.until_status(&deafens, McpStatus::Connected).await;
    let before = fixture
        .runtime
        .process("mcp-deafens", "main")
        .expect("a process");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let fixture = fixture.daemon_restarts().await;
    // A call of the earlier daemon may keep it busy, but no longer than the longest call.
    fixture.until_status(&deafens, McpStatus::Connected).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(before.is_running());
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(!before.is_running());
    fixture.until_status(&deafens, McpStatus::Connected).await;
}

impl Fixture {
    /// A call that blocks the single-threaded server. Its response is not awaited.
    fn works_for(&self, name: &McpServerName, seconds: u64) {
        let (hosting, name) = (self.hosting.clone(), name.clone());
        let arguments = json!({"seconds": seconds}).as_object().cloned();
        tokio::spawn(async move {
            let arguments = arguments.expect("an object");
            drop(hosting.call(&name, "wait", arguments).await);
        });
    }

    fn main_of(&self, session: &str) -> Arc<Process> {
        self.runtime.process(session, "main").expect("a process")
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_adopted() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let main = fixture.main_of("mcp-time");
    fixture.works_for(&time, 1200);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let fixture = fixture.daemon_restarts().await;
    let runtime = fixture.until_status(&time, McpStatus::Connected).await;
    assert_eq!(runtime.tool_count, 3, "as they were");
    tokio::time::sleep(Duration::from_secs(1150)).await;
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Connected);
    let opened = fixture.hosting.call(&time, "greet", nothing()).await;
    assert!(opened.expect("a result").get().contains("hello"));
    assert!(Arc::ptr_eq(&main, &fixture.main_of("mcp-time")) && main.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_connection_lost_during_a_call_is_reattached_without_restart() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let main = fixture.main_of("mcp-time");
    fixture.works_for(&time, 300);
    tokio::time::sleep(Duration::from_secs(5)).await;
    main.drop_reader();
    fixture.runtime.attach_fails.store(2, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(280)).await;
    let opened = fixture.hosting.call(&time, "greet", nothing()).await;
    assert!(opened.expect("a result").get().contains("hello"));
    assert!(Arc::ptr_eq(&main, &fixture.main_of("mcp-time")) && main.is_running());
    assert_eq!(fixture.runtime_of(&time).retry_count, 0);
}

#[tokio::test(start_paused = true)]
async fn slow_child_processes_do_not_delay_adoption() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let main = fixture.main_of("mcp-time");
    let server = fixture.hosting.connected(&time).expect("connected");
    let mut children = Vec::new();
    for _ in 0..3 {
        let params = RawValue::from_string("{\"protocolVersion\":\"2025-11-25\"}".to_owned());
        children.push(
            server
                .client_process(params.expect("JSON"))
                .await
                .expect("a child"),
        );
    }
    *fixture.runtime.stop_takes.lock().expect("no panic") = Duration::from_secs(50);
    let fixture = fixture.daemon_restarts().await;
    assert_eq!(fixture.runtime.running("mcp-time").len(), 4);
    let began = Instant::now();
    fixture.until_status(&time, McpStatus::Connected).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(fixture.runtime.running("mcp-time"), ["main"]);
    assert!(Arc::ptr_eq(&main, &fixture.main_of("mcp-time")));
}

#[tokio::test(start_paused = true)]
async fn shutdown_keeps_only_the_main_process() {
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
    let params = RawValue::from_string("{\"protocolVersion\":\"2025-11-25\"}".to_owned());
    let child = server
        .client_process(params.expect("JSON"))
        .await
        .expect("a child");
    server.modern().await.expect("asked").expect("it knows");
    assert_eq!(fixture.runtime.running("mcp-both").len(), 3);
    fixture.hosting.close().await;
    assert_eq!(fixture.runtime.running("mcp-both"), ["main"]);
    drop(child);
}

#[tokio::test(start_paused = true)]
async fn the_run_record_describes_the_running_server() {
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
    // An edit is stored before the supervisor is notified.
    let state = fixture.hosting.handle(&slow).expect("there").state;
    let before = state.spec();
    let now = Timestamp::now();
    state.replace(Stored {
        spec: spec_of(json!({"name": "slow", "command": "slow", "args": ["--other"]})),
        created_at: now,
        updated_at: now,
    });
    fixture.until_status(&slow, McpStatus::Connected).await;
    let kept = fixture.dir.path().join("mcp/greetings/slow.json");
    let kept = std::fs::read_to_string(kept).expect("a record");
    assert!(kept.contains(&fingerprint(&before)), "{kept}");
    assert!(!kept.contains(&fingerprint(&state.spec())), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_reattached_without_restart() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let main = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    let before = fixture.hosting.connected(&time).expect("connected").main();
    main.drop_reader();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(before.is_ended());
    assert!(main.is_running());
    assert_eq!(fixture.runtime_of(&time).status, McpStatus::Connected);
    fixture
        .hosting
        .call(&time, "greet", nothing())
        .await
        .expect("a result");
    let now = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert!(Arc::ptr_eq(&main, &now));
}

#[tokio::test(start_paused = true)]
async fn a_process_without_handshake_is_not_adopted() {
    let fixture = Fixture::new();
    let slow = FakeServer {
        handshake_delay: Duration::from_secs(20),
        ..FakeServer::default()
    };
    fixture.add_program("slow", slow);
    let slow = fixture
        .add(json!({"name": "slow", "command": "slow"}))
        .await;
    fixture.until_status(&slow, McpStatus::Connected).await;
    fixture.hosting.restart(&slow).await.expect("restarted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let half = fixture.main_of("mcp-slow");
    assert!(half.is_running());
    let fixture = fixture.daemon_restarts().await;
    fixture.until_status(&slow, McpStatus::Connected).await;
    assert!(!half.is_running(), "its state is unknown");
    assert_eq!(fixture.runtime.running("mcp-slow"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn disabling_boxes_stops_running_servers() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let main = fixture.main_of("mcp-time");
    fixture.runtime.set_availability(BoxAvailability::Disabled);
    let fixture = fixture.daemon_restarts().await;
    let runtime = fixture.until_status(&time, McpStatus::Error).await;
    assert_eq!(runtime.error_phase, Some(McpPhase::BoxUnavailable));
    let message = runtime.error_message.as_deref();
    assert_eq!(message, Some("box_disabled_in_config"));
    assert!(!main.is_running());
    assert_eq!(fixture.runtime.names(), [""; 0]);
    fixture.runtime.set_availability(BoxAvailability::Ready);
    fixture.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_running_server_is_adopted_without_available_backend() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let main = fixture.main_of("mcp-time");
    fixture
        .runtime
        .set_availability(BoxAvailability::Unavailable {
            message: "it is busy".to_owned(),
            hint: None,
        });
    let fixture = fixture.daemon_restarts().await;
    fixture.until_status(&time, McpStatus::Connected).await;
    assert!(Arc::ptr_eq(&main, &fixture.main_of("mcp-time")) && main.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_start_interrupted_by_shutdown_is_repeated_by_the_next_daemon() {
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
    let half = fixture
        .runtime
        .process("mcp-slow", "main")
        .expect("a process");
    let fixture = fixture.daemon_restarts().await;
    fixture.until_status(&slow, McpStatus::Connected).await;
    assert!(!half.is_running(), "its state is unknown");
    assert_eq!(fixture.runtime.running("mcp-slow"), ["main"]);
}
