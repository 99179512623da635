//! What is stored, shown, changed and removed.

use std::sync::Arc;

use boxwood_api::{McpPhase, McpProgress, McpStatus, Network};
use futures_util::StreamExt as _;
use serde_json::{Map, json};
use tokio::sync::mpsc;

use super::{Habits, House, name, nothing, spec_of};
use crate::hosting::HostingError;

#[tokio::test(start_paused = true)]
async fn a_server_comes_through_the_phases_and_shows_its_tools() {
    let house = House::new();
    let time = house
        .add(json!({"name": "time", "command": "well", "tools": {"deny": ["wait"]}}))
        .await;
    let progress: Vec<_> = house
        .hosting
        .progress(&time)
        .expect("there")
        .collect()
        .await;
    let Some(McpProgress::Done { runtime }) = progress.last() else {
        panic!("{progress:?}");
    };
    assert_eq!(runtime.status, McpStatus::Connected);
    let phases: Vec<_> = runtime.steps.iter().map(|step| step.phase).collect();
    let expected = [
        McpPhase::SessionCreate,
        McpPhase::ProcessStart,
        McpPhase::RelayConnect,
        McpPhase::McpInit,
        McpPhase::Runtime,
    ];
    assert_eq!(phases, expected);
    let ended = runtime.steps.iter().filter(|step| step.ended_at.is_some());
    assert_eq!(ended.count(), 4, "the last one goes on");
    let tools: Vec<_> = runtime
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!((runtime.tool_count, tools), (2, vec!["greet", "env"]));
    assert_eq!(
        runtime
            .box_session_id
            .as_ref()
            .map(boxwood_api::SessionId::as_str),
        Some("mcp-time")
    );
    assert_eq!(runtime.box_enabled, Some(true));
    assert_eq!(
        runtime.server_info,
        Some(json!({"name": "habits", "version": "1"}))
    );
    // Who comes later hears the same, and the stream ends.
    let again: Vec<_> = house
        .hosting
        .progress(&time)
        .expect("there")
        .collect()
        .await;
    assert_eq!(again.len(), 6, "{again:?}");
    let logs = house.hosting.logs(&time).await.expect("logs");
    assert!(
        logs.protocol
            .iter()
            .any(|line| line.starts_with("> initialize"))
    );
    // A list of servers is no list of all their tools.
    let listed = house.hosting.list().remove(0).runtime;
    assert_eq!((listed.tool_count, listed.tools), (2, vec![]));
    let standing = house.hosting.standings().remove(0);
    assert_eq!(standing.status, McpStatus::Connected);
    assert_eq!(standing.session.as_str(), "mcp-time");
}

#[tokio::test(start_paused = true)]
async fn a_call_reaches_the_server_unless_the_filter_keeps_the_tool_back() {
    let house = House::new();
    let time = house.well("time").await;
    let result = house.hosting.call(&time, "greet", nothing()).await;
    assert!(result.expect("a result").get().contains("hello"));
    let edit = serde_json::from_value(json!({"tools": {"allow": ["env"]}})).expect("an edit");
    house.hosting.edit(&time, edit).await.expect("edited");
    let refused = house.hosting.call(&time, "greet", nothing()).await;
    assert!(
        matches!(refused, Err(HostingError::ToolNotFound { .. })),
        "{refused:?}"
    );
    let missing = house.hosting.call(&name("none"), "x", nothing()).await;
    assert!(matches!(missing, Err(HostingError::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_edit_restarts_a_server_only_where_the_process_would_be_another() {
    let house = House::new();
    let time = house.well("time").await;
    let main = || {
        house
            .runtime
            .process("mcp-time", "main")
            .expect("a process")
    };
    let before = main();
    for quiet in [
        json!({"tools": {"deny": ["wait"]}}),
        json!({"idle_stop_sec": 3600}),
        json!({"box": {"startup_timeout_sec": 60}}),
    ] {
        let edit = serde_json::from_value(quiet).expect("an edit");
        house.hosting.edit(&time, edit).await.expect("edited");
    }
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(Arc::ptr_eq(&before, &main()), "it is the same process");
    assert_eq!(house.runtime_of(&time).tool_count, 2);
    let edit = serde_json::from_value(json!({"args": ["--utc"]})).expect("an edit");
    house.hosting.edit(&time, edit).await.expect("edited");
    house.until_status(&time, McpStatus::Connected).await;
    assert!(!before.is_running());
    assert_eq!(main().spec.args, ["--utc"]);
    let edit = serde_json::from_value(json!({"enabled": false})).expect("an edit");
    let info = house.hosting.edit(&time, edit).await.expect("edited");
    assert_eq!(info.runtime.status, McpStatus::Disabled);
    assert_eq!(house.runtime.names(), [""; 0]);
    let refused = house.hosting.start(&time).await;
    assert!(
        matches!(refused, Err(HostingError::Disabled { .. })),
        "{refused:?}"
    );
    let edit = serde_json::from_value(json!({"enabled": true})).expect("an edit");
    house.hosting.edit(&time, edit).await.expect("edited");
    house.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_one_setting_leaves_a_box_without_a_network() {
    let house = House::new();
    let time = house
        .add(json!({
            "name": "time", "command": "well",
            "box": {"network": "off", "read_only_rootfs": true}, "tools": {"deny": ["wait"]},
        }))
        .await;
    house.until_status(&time, McpStatus::Connected).await;
    let edit = json!({"box": {"memory_mb": 1024}, "tools": {"allow": ["*"]}});
    let edit = serde_json::from_value(edit).expect("an edit");
    let info = house.hosting.edit(&time, edit).await.expect("edited");
    house.until_status(&time, McpStatus::Connected).await;
    assert_eq!(info.settings.network, Network::Off);
    assert_eq!(info.settings.read_only_rootfs, Some(true));
    assert_eq!(info.settings.memory_mb, Some(1024));
    assert_eq!(info.tools.deny, ["wait"]);
}

#[tokio::test(start_paused = true)]
async fn values_of_variables_reach_the_process_and_nothing_else() {
    let house = House::new();
    let complains = Habits {
        complains: "bad token hunter2-secret\n",
        ..Habits::default()
    };
    house.knows("tells", complains);
    let spec = json!({
        "name": "tells", "command": "tells", "env": {"TOKEN": "hunter2-secret"},
        "box": {"env": {"LANG": "C"}},
    });
    let tells = house.add(spec).await;
    house.until_status(&tells, McpStatus::Connected).await;
    let result = house.hosting.call(&tells, "env", nothing()).await;
    assert!(result.expect("a result").get().contains("hunter2-secret"));
    let requested = serde_json::to_string(&house.runtime.requested()[0].0).expect("JSON");
    assert!(
        requested.contains("LANG") && !requested.contains("hunter2"),
        "{requested}"
    );
    let shown = serde_json::to_string(&house.hosting.get(&tells).expect("there")).expect("JSON");
    assert!(
        shown.contains("TOKEN") && !shown.contains("hunter2"),
        "{shown}"
    );
    let logs = house.hosting.logs(&tells).await.expect("logs");
    assert_eq!(logs.stderr, "bad token [TOKEN]\n");
    let kept = house.dir.path().join("mcp/greetings/tells.json");
    let kept = std::fs::read_to_string(kept).expect("a record");
    assert!(!kept.contains("hunter2"), "{kept}");
    // What it said before its token was changed is not told afterwards either.
    let edit =
        serde_json::from_value(json!({"env": {"TOKEN": "another-secret"}})).expect("an edit");
    house.hosting.edit(&tells, edit).await.expect("edited");
    house.hosting.stop(&tells).await.expect("stopped");
    let logs = house.hosting.logs(&tells).await.expect("logs");
    assert!(!logs.stderr.contains("hunter2"), "{}", logs.stderr);
}

#[tokio::test(start_paused = true)]
async fn a_secret_in_an_argument_reaches_the_process_and_nothing_else() {
    let house = House::new();
    let complains = Habits {
        complains: "bad --token=hunter2-secret\n",
        ..Habits::default()
    };
    house.knows("tells", complains);
    let request = json!({
        "document": {
            "inputs": [{"id": "token", "password": true}],
            "servers": {"tells": {"command": "tells", "args": ["--token=${input:token}"]}},
        },
        "inputs": {"token": "hunter2-secret"},
    });
    let request = serde_json::from_value(request).expect("a request");
    let imported = house.hosting.import(request).await.expect("imported");
    assert_eq!(imported.notices, [""; 0]);
    let tells = name("tells");
    house.until_status(&tells, McpStatus::Connected).await;
    let main = || house.runtime.process("mcp-tells", "main").expect("there");
    assert_eq!(main().spec.args, ["--token=hunter2-secret"]);
    assert!(main().spec.env.is_empty(), "{:?}", main().spec.env);
    let info = house.hosting.get(&tells).expect("there");
    assert_eq!(info.args, ["--token=${input:token}"]);
    assert_eq!(info.env_keys, ["input:token"]);
    let logs = house.hosting.logs(&tells).await.expect("logs");
    assert_eq!(logs.stderr, "bad --token=[input:token]\n");
    for kept in ["servers/tells.json", "greetings/tells.json"] {
        let kept = std::fs::read_to_string(house.dir.path().join("mcp").join(kept));
        let kept = kept.expect("a file");
        assert!(!kept.contains("hunter2"), "{kept}");
    }
    let edit = json!({"env": {"input:token": "another"}});
    let edit = serde_json::from_value(edit).expect("an edit");
    house.hosting.edit(&tells, edit).await.expect("edited");
    house.until_status(&tells, McpStatus::Connected).await;
    assert_eq!(main().spec.args, ["--token=another"]);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_a_server_tells_of_itself_is_not_shown() {
    let house = House::new();
    let spec = json!({"name": "tells", "command": "well", "env": {"TOLD": "hunter2-secret"}});
    let tells = house.add(spec.clone()).await;
    let runtime = house.until_status(&tells, McpStatus::Connected).await;
    let (tell, mut told) = mpsc::channel(64);
    let tried = house.hosting.test(spec_of(spec), tell).await;
    for runtime in [runtime, tried.expect("tested").runtime] {
        let info = runtime.server_info.expect("it said who it is");
        assert_eq!(info, json!({"name": "habits", "version": "[TOLD]"}));
        assert_eq!(runtime.tools[0].description, "tool [TOLD]");
    }
    while let Some(progress) = told.recv().await {
        let progress = serde_json::to_string(&progress).expect("JSON");
        assert!(!progress.contains("hunter2"), "{progress}");
    }
    // Also what it says later.
    let arguments = Map::from_iter([("code".to_owned(), json!(-32602))]);
    let refused = house.hosting.call(&tells, "refuse", arguments).await;
    let message = refused.expect_err("refused").to_string();
    assert!(message.contains("not with [TOLD]"), "{message}");
    let called = house.hosting.call(&tells, "grow", nothing()).await;
    called.expect("called");
    let grown = house.until(&tells, |runtime| runtime.tool_count == 4).await;
    let shown = serde_json::to_string(&grown).expect("JSON");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_a_server_prints_on_its_stdout_is_in_no_log() {
    let house = House::new();
    house.runtime.program("leaks", |pipes| async move {
        let token = pipes.process.spec.env["TOKEN"].clone();
        pipes.say(&format!("using {token}"));
        Habits::default().serve(pipes).await
    });
    let spec = json!({
        "name": "leaks", "command": "leaks", "env": {"TOKEN": "hunter2-secret"},
    });
    let leaks = house.add(spec).await;
    house.until_status(&leaks, McpStatus::Connected).await;
    // Also after the value is another one.
    let edit =
        serde_json::from_value(json!({"env": {"TOKEN": "another-secret"}})).expect("an edit");
    house.hosting.edit(&leaks, edit).await.expect("edited");
    house.until_status(&leaks, McpStatus::Connected).await;
    let lines = house.hosting.logs(&leaks).await.expect("logs").protocol;
    let shown = lines.iter().filter(|line| line.ends_with("using [TOKEN]"));
    assert_eq!(shown.count(), 2, "{lines:?}");
    assert!(
        lines.iter().all(|line| !line.contains("-secret")),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn removal_leaves_nothing() {
    let house = House::new();
    let time = house
        .add(json!({"name": "time", "command": "well", "env": {"TOKEN": "hunter2"}}))
        .await;
    house.until_status(&time, McpStatus::Connected).await;
    let process = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert_eq!(house.entries("secrets"), 1);
    house.hosting.remove(&time).await.expect("removed");
    assert!(!process.is_running());
    assert_eq!(house.runtime.names(), [""; 0]);
    for place in ["servers", "secrets", "greetings", "boxes", "work", "cache"] {
        assert_eq!(house.entries(place), 0, "{place}");
    }
    assert!(matches!(
        house.hosting.get(&time),
        Err(HostingError::NotFound { .. })
    ));
    // Its name is free again.
    house.well("time").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_can_be_removed_while_it_starts() {
    let house = House::new();
    let slow = Habits {
        greets_after: std::time::Duration::from_mins(1),
        ..Habits::default()
    };
    house.knows("slow", slow);
    let slow = house.add(json!({"name": "slow", "command": "slow"})).await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let step = house.runtime_of(&slow).steps.pop().expect("a step");
    assert_eq!(step.phase, McpPhase::McpInit);
    house.hosting.remove(&slow).await.expect("removed");
    assert_eq!(house.runtime.names(), [""; 0]);
    assert_eq!(house.entries("boxes"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_once_unless_it_is_replaced() {
    let house = House::new();
    let time = house.well("time").await;
    let spec = spec_of(json!({"name": "time", "command": "well", "args": ["again"]}));
    let refused = house.hosting.add(spec.clone(), false).await;
    assert!(
        matches!(refused, Err(HostingError::Exists { .. })),
        "{refused:?}"
    );
    house.hosting.add(spec, true).await.expect("replaced");
    house.until_status(&time, McpStatus::Connected).await;
    let process = house
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert_eq!(process.spec.args, ["again"]);
    assert_eq!(house.hosting.list().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pasted_document_becomes_servers_that_run() {
    let house = House::new();
    house.well("time").await;
    let request = serde_json::from_value(json!({"document": {"mcpServers": {
        "git": {"command": "well"}, "time": {"command": "well"},
        "far": {"url": "https://example.com/mcp"},
    }}}));
    let imported = house
        .hosting
        .import(request.expect("a request"))
        .await
        .expect("imported");
    assert_eq!(imported.added, [name("git")]);
    let skipped: Vec<_> = imported
        .skipped
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert!(
        skipped.contains(&"time") && skipped.contains(&"far"),
        "{skipped:?}"
    );
    house.until_status(&name("git"), McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn tools_that_change_are_listed_again() {
    let house = House::new();
    let time = house.well("time").await;
    house
        .hosting
        .call(&time, "grow", nothing())
        .await
        .expect("grown");
    let runtime = house.until(&time, |runtime| runtime.tool_count == 4).await;
    assert!(runtime.tools.iter().any(|tool| tool.name == "grown"));
}

#[tokio::test(start_paused = true)]
async fn there_is_a_most_of_servers() {
    let house = House::with(|settings| settings.max_servers = 1);
    house.well("one").await;
    let two = spec_of(json!({"name": "two", "command": "well"}));
    let refused = house.hosting.add(two, false).await;
    assert!(
        matches!(refused, Err(HostingError::Full { .. })),
        "{refused:?}"
    );
}
