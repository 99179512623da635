//! Servers outlive the daemon, and the way to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{McpPhase, McpServerName, McpStatus};
use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::program::Process;
use super::{Habits, House, nothing, spec_of};
use crate::hosting::run_record::fingerprint;
use crate::hosting::store::Stored;
use crate::hosting::{Hosting, HostingSettings, Standing};

impl House {
    /// The daemon ends and another one begins.
    async fn daemon_restarts(self) -> Self {
        self.hosting.close().await;
        let settings = HostingSettings::new(self.dir.path().join("mcp"));
        let hosting = Hosting::new(Arc::clone(&self.runtime) as _, settings).expect("hosting");
        hosting.begin();
        Self { hosting, ..self }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_daemon_takes_a_running_server_over_as_it_is() {
    let house = House::new();
    let time = house.well("time").await;
    let server = house.hosting.connected(&time).expect("connected");
    let params = RawValue::from_string("{\"protocolVersion\":\"2025-11-25\"}".to_owned());
    // Its client does not go before the daemon does.
    let _child = server.own(params.expect("JSON")).await.expect("a child");
    let main = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert_eq!(house.runtime.running("mcp-time").len(), 2);
    let house = house.daemon_restarts().await;
    let runtime = house.until_status(&time, McpStatus::Connected).await;
    let now = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert!(
        Arc::ptr_eq(&main, &now) && main.is_running(),
        "it is the same process"
    );
    assert_eq!(
        house.runtime.running("mcp-time"),
        ["main"],
        "its children went with their clients"
    );
    assert_eq!(runtime.tool_count, 3);
    let phases: Vec<_> = runtime.steps.iter().map(|step| step.phase).collect();
    assert_eq!(phases, [McpPhase::RelayConnect, McpPhase::Runtime]);
    house
        .hosting
        .call(&time, "greet", nothing())
        .await
        .expect("a result");
}

#[tokio::test(start_paused = true)]
async fn what_a_box_was_not_given_is_told_also_by_the_next_daemon() {
    let house = House::new();
    let locked = "network is locked to off by profile `tight`; on was asked for";
    *house.runtime.notices.lock().expect("no panic") = vec![locked.to_owned()];
    let time = house.well("time").await;
    assert_eq!(house.runtime_of(&time).notices, [locked]);
    let house = house.daemon_restarts().await;
    let runtime = house.until_status(&time, McpStatus::Connected).await;
    assert_eq!(runtime.notices, [locked]);
    house.runtime.notices.lock().expect("no panic").clear();
    house.hosting.restart(&time).await.expect("restarted");
    let runtime = house.until_status(&time, McpStatus::Connected).await;
    assert_eq!(runtime.notices, [""; 0], "those of the last start");
}

#[tokio::test(start_paused = true)]
async fn a_new_daemon_starts_what_does_not_run_and_clears_what_should_not() {
    let house = House::new();
    let ended = house.well("ended").await;
    let disabled = house.well("disabled").await;
    let changed = house.well("changed").await;
    house.hosting.close().await;
    house
        .runtime
        .process("mcp-ended", "main")
        .expect("a process")
        .kill
        .cancel();
    let before = house
        .runtime
        .process("mcp-changed", "main")
        .expect("a process");
    let edit = |server: &str, key: &str, value: serde_json::Value| {
        let path = house.dir.path().join(format!("mcp/servers/{server}.json"));
        let text = std::fs::read(&path).expect("a file");
        let mut file: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        file["spec"][key] = value;
        std::fs::write(&path, file.to_string()).expect("written");
    };
    edit("disabled", "enabled", json!(false));
    edit("changed", "args", json!(["--other"]));
    let house = house.daemon_restarts().await;
    house.until_status(&ended, McpStatus::Connected).await;
    house.until_status(&changed, McpStatus::Connected).await;
    assert!(!before.is_running(), "it was another server");
    assert_eq!(house.runtime_of(&disabled).status, McpStatus::Disabled);
    assert_eq!(house.runtime.names(), ["mcp-changed", "mcp-ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_a_new_daemon_is_started_anew() {
    let house = House::new();
    let habits = Habits {
        deaf_after: Some(Duration::from_secs(10)),
        ..Habits::default()
    };
    house.knows("deafens", habits);
    let deafens = house
        .add(json!({"name": "deafens", "command": "deafens"}))
        .await;
    house.until_status(&deafens, McpStatus::Connected).await;
    let before = house
        .runtime
        .process("mcp-deafens", "main")
        .expect("a process");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let house = house.daemon_restarts().await;
    // It may be busy for somebody who is gone, but not for longer than any call takes.
    house.until_status(&deafens, McpStatus::Connected).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(before.is_running());
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(!before.is_running());
    house.until_status(&deafens, McpStatus::Connected).await;
}

impl House {
    /// A call that nobody waits for, and that leaves the server no hand free.
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
async fn a_server_in_the_middle_of_a_call_is_taken_over_as_it_is() {
    let house = House::new();
    let time = house.well("time").await;
    let main = house.main_of("mcp-time");
    house.works_for(&time, 1200);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let house = house.daemon_restarts().await;
    let runtime = house.until_status(&time, McpStatus::Connected).await;
    assert_eq!(runtime.tool_count, 3, "as they were");
    tokio::time::sleep(Duration::from_secs(1150)).await;
    assert_eq!(house.runtime_of(&time).status, McpStatus::Connected);
    let greeted = house.hosting.call(&time, "greet", nothing()).await;
    assert!(greeted.expect("a result").get().contains("hello"));
    assert!(Arc::ptr_eq(&main, &house.main_of("mcp-time")) && main.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_during_a_call_is_made_anew_without_a_restart() {
    let house = House::new();
    let time = house.well("time").await;
    let main = house.main_of("mcp-time");
    house.works_for(&time, 300);
    tokio::time::sleep(Duration::from_secs(5)).await;
    main.drop_reader();
    house.runtime.attach_fails.store(2, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(280)).await;
    let greeted = house.hosting.call(&time, "greet", nothing()).await;
    assert!(greeted.expect("a result").get().contains("hello"));
    assert!(Arc::ptr_eq(&main, &house.main_of("mcp-time")) && main.is_running());
    assert_eq!(house.runtime_of(&time).retry_count, 0);
}

#[tokio::test(start_paused = true)]
async fn children_that_end_slowly_hold_no_taking_over_up() {
    let house = House::new();
    let time = house.well("time").await;
    let main = house.main_of("mcp-time");
    let server = house.hosting.connected(&time).expect("connected");
    let mut children = Vec::new();
    for _ in 0..3 {
        let params = RawValue::from_string("{\"protocolVersion\":\"2025-11-25\"}".to_owned());
        children.push(server.own(params.expect("JSON")).await.expect("a child"));
    }
    *house.runtime.stop_takes.lock().expect("no panic") = Duration::from_secs(50);
    let house = house.daemon_restarts().await;
    assert_eq!(house.runtime.running("mcp-time").len(), 4);
    let began = Instant::now();
    house.until_status(&time, McpStatus::Connected).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(house.runtime.running("mcp-time"), ["main"]);
    assert!(Arc::ptr_eq(&main, &house.main_of("mcp-time")));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_ends_leaves_the_main_process_and_no_other() {
    let house = House::new();
    let both = Habits {
        is_modern: true,
        ..Habits::default()
    };
    house.knows("both", both);
    let both = house.add(json!({"name": "both", "command": "both"})).await;
    let server = house.hosting.server(&both).await.expect("a server");
    let params = RawValue::from_string("{\"protocolVersion\":\"2025-11-25\"}".to_owned());
    let child = server.own(params.expect("JSON")).await.expect("a child");
    server.modern().await.expect("asked").expect("it knows");
    assert_eq!(house.runtime.running("mcp-both").len(), 3);
    house.hosting.close().await;
    assert_eq!(house.runtime.running("mcp-both"), ["main"]);
    drop(child);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_a_server_is_what_runs() {
    let house = House::new();
    let slow = Habits {
        greets_after: Duration::from_secs(20),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let slow = house.add(json!({"name": "slow", "command": "slow"})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // An edit is stored before anybody is told about it.
    let hosted = house.hosting.seat(&slow).expect("there").hosted;
    let before = hosted.spec();
    let now = Timestamp::now();
    hosted.replace(Stored {
        spec: spec_of(json!({"name": "slow", "command": "slow", "args": ["--other"]})),
        created_at: now,
        updated_at: now,
    });
    house.until_status(&slow, McpStatus::Connected).await;
    let kept = house.dir.path().join("mcp/greetings/slow.json");
    let kept = std::fs::read_to_string(kept).expect("a record");
    assert!(kept.contains(&fingerprint(&before)), "{kept}");
    assert!(!kept.contains(&fingerprint(&hosted.spec())), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_anew_without_a_restart() {
    let house = House::new();
    let time = house.well("time").await;
    let main = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    let before = house.hosting.connected(&time).expect("connected").main();
    main.drop_reader();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(before.is_ended());
    assert!(main.is_running());
    assert_eq!(house.runtime_of(&time).status, McpStatus::Connected);
    house
        .hosting
        .call(&time, "greet", nothing())
        .await
        .expect("a result");
    let now = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert!(Arc::ptr_eq(&main, &now));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_never_greeted_is_not_taken_for_the_one_before_it() {
    let house = House::new();
    let slow = Habits {
        greets_after: Duration::from_secs(20),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let slow = house.add(json!({"name": "slow", "command": "slow"})).await;
    house.until_status(&slow, McpStatus::Connected).await;
    house.hosting.restart(&slow).await.expect("restarted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let half = house.main_of("mcp-slow");
    assert!(half.is_running());
    let house = house.daemon_restarts().await;
    house.until_status(&slow, McpStatus::Connected).await;
    assert!(!half.is_running(), "nobody knows what it was told");
    assert_eq!(house.runtime.running("mcp-slow"), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn boxes_that_are_turned_off_end_the_servers_that_run() {
    let house = House::new();
    let time = house.well("time").await;
    let main = house.main_of("mcp-time");
    house.runtime.stands(Standing::Disabled);
    let house = house.daemon_restarts().await;
    let runtime = house.until_status(&time, McpStatus::Error).await;
    assert_eq!(runtime.error_phase, Some(McpPhase::BoxUnavailable));
    let message = runtime.error_message.as_deref();
    assert_eq!(message, Some("box_disabled_in_config"));
    assert!(!main.is_running());
    assert_eq!(house.runtime.names(), [""; 0]);
    house.runtime.stands(Standing::Ready);
    house.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_runs_needs_no_backend_that_could_make_another_box() {
    let house = House::new();
    let time = house.well("time").await;
    let main = house.main_of("mcp-time");
    house.runtime.stands(Standing::Unavailable {
        message: "it is busy".to_owned(),
        hint: None,
    });
    let house = house.daemon_restarts().await;
    house.until_status(&time, McpStatus::Connected).await;
    assert!(Arc::ptr_eq(&main, &house.main_of("mcp-time")) && main.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_ends_while_a_server_starts_leaves_it_to_the_next() {
    let house = House::new();
    let slow = Habits {
        greets_after: Duration::from_secs(20),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let slow = house.add(json!({"name": "slow", "command": "slow"})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let half = house
        .runtime
        .process("mcp-slow", "main")
        .expect("a process");
    let house = house.daemon_restarts().await;
    house.until_status(&slow, McpStatus::Connected).await;
    assert!(!half.is_running(), "nobody knows what it was told");
    assert_eq!(house.runtime.running("mcp-slow"), ["main"]);
}
