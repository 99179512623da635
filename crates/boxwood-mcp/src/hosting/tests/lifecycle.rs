//! Adding, showing, updating and removing servers.

use std::sync::Arc;

use boxwood_api::{McpPhase, McpProgress, McpStatus, Network};
use futures_util::StreamExt as _;
use serde_json::{Map, json};
use tokio::sync::mpsc;

use super::{FakeServer, Fixture, name, nothing, spec_of};
use crate::hosting::HostingError;

#[tokio::test(start_paused = true)]
async fn a_server_passes_all_phases_and_lists_its_tools() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({"name": "time", "command": "well", "tools": {"deny": ["wait"]}}))
        .await;
    let progress: Vec<_> = fixture
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
        Some(json!({"name": "fake", "version": "1"}))
    );
    // A later follower sees the same events, and the stream ends.
    let again: Vec<_> = fixture
        .hosting
        .progress(&time)
        .expect("there")
        .collect()
        .await;
    assert_eq!(again.len(), 6, "{again:?}");
    let logs = fixture.hosting.logs(&time).await.expect("logs");
    assert!(
        logs.protocol
            .iter()
            .any(|line| line.starts_with("> initialize"))
    );
    // A listing has no tools.
    let listed = fixture.hosting.list().remove(0).runtime;
    assert_eq!((listed.tool_count, listed.tools), (2, vec![]));
    let standing = fixture.hosting.summaries().remove(0);
    assert_eq!(standing.status, McpStatus::Connected);
    assert_eq!(standing.session.as_str(), "mcp-time");
}

#[tokio::test(start_paused = true)]
async fn calls_reach_the_server_unless_filtered() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let result = fixture.hosting.call(&time, "greet", nothing()).await;
    assert!(result.expect("a result").get().contains("hello"));
    let edit = serde_json::from_value(json!({"tools": {"allow": ["env"]}})).expect("an edit");
    fixture.hosting.edit(&time, edit).await.expect("edited");
    let refused = fixture.hosting.call(&time, "greet", nothing()).await;
    assert!(
        matches!(refused, Err(HostingError::ToolNotFound { .. })),
        "{refused:?}"
    );
    let missing = fixture.hosting.call(&name("none"), "x", nothing()).await;
    assert!(matches!(missing, Err(HostingError::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_edit_restarts_only_if_the_process_changes() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let main = || {
        fixture
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
        fixture.hosting.edit(&time, edit).await.expect("edited");
    }
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(Arc::ptr_eq(&before, &main()), "it is the same process");
    assert_eq!(fixture.runtime_of(&time).tool_count, 2);
    let edit = serde_json::from_value(json!({"args": ["--utc"]})).expect("an edit");
    fixture.hosting.edit(&time, edit).await.expect("edited");
    fixture.until_status(&time, McpStatus::Connected).await;
    assert!(!before.is_running());
    assert_eq!(main().spec.args, ["--utc"]);
    let edit = serde_json::from_value(json!({"enabled": false})).expect("an edit");
    let info = fixture.hosting.edit(&time, edit).await.expect("edited");
    assert_eq!(info.runtime.status, McpStatus::Disabled);
    assert_eq!(fixture.runtime.names(), [""; 0]);
    let refused = fixture.hosting.start(&time).await;
    assert!(
        matches!(refused, Err(HostingError::Disabled { .. })),
        "{refused:?}"
    );
    let edit = serde_json::from_value(json!({"enabled": true})).expect("an edit");
    fixture.hosting.edit(&time, edit).await.expect("edited");
    fixture.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_keeps_other_box_settings() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({
            "name": "time", "command": "well",
            "box": {"network": "off", "read_only_rootfs": true}, "tools": {"deny": ["wait"]},
        }))
        .await;
    fixture.until_status(&time, McpStatus::Connected).await;
    let edit = json!({"box": {"memory_mb": 1024}, "tools": {"allow": ["*"]}});
    let edit = serde_json::from_value(edit).expect("an edit");
    let info = fixture.hosting.edit(&time, edit).await.expect("edited");
    fixture.until_status(&time, McpStatus::Connected).await;
    assert_eq!(info.settings.network, Network::Off);
    assert_eq!(info.settings.read_only_rootfs, Some(true));
    assert_eq!(info.settings.memory_mb, Some(1024));
    assert_eq!(info.tools.deny, ["wait"]);
}

#[tokio::test(start_paused = true)]
async fn variable_values_reach_only_the_process() {
    let fixture = Fixture::new();
    fixture.runtime.program("tells", |pipes| async move {
        let token = pipes.process.spec.env["TOKEN"].clone();
        pipes.write_stderr(&format!("bad token {token}\n"));
        FakeServer::default().serve(pipes).await
    });
    let spec = json!({
        "name": "tells", "command": "tells", "env": {"TOKEN": "hunter2-secret"},
        "box": {"env": {"LANG": "C"}},
    });
    let tells = fixture.add(spec).await;
    fixture.until_status(&tells, McpStatus::Connected).await;
    let result = fixture.hosting.call(&tells, "env", nothing()).await;
    assert!(result.expect("a result").get().contains("hunter2-secret"));
    let requested = serde_json::to_string(&fixture.runtime.requested()[0].0).expect("JSON");
    assert!(
        requested.contains("LANG") && !requested.contains("hunter2"),
        "{requested}"
    );
    let shown = serde_json::to_string(&fixture.hosting.get(&tells).expect("there")).expect("JSON");
    assert!(
        shown.contains("TOKEN") && !shown.contains("hunter2"),
        "{shown}"
    );
    let logs = fixture.hosting.logs(&tells).await.expect("logs");
    assert_eq!(logs.stderr, "bad token [TOKEN]\n");
    let kept = fixture.dir.path().join("mcp/greetings/tells.json");
    let kept = std::fs::read_to_string(kept).expect("a record");
    assert!(!kept.contains("hunter2"), "{kept}");
    // Daemons of other versions read this key.
    assert!(kept.contains("\"greeting\":"), "{kept}");
    // Output from before the change of its token stays redacted.
    let edit =
        serde_json::from_value(json!({"env": {"TOKEN": "another-secret"}})).expect("an edit");
    fixture.hosting.edit(&tells, edit).await.expect("edited");
    fixture.until_status(&tells, McpStatus::Connected).await;
    let redacted = "bad token [TOKEN]\n--- started again ---\nbad token [TOKEN]\n";
    let logs = fixture.hosting.logs(&tells).await.expect("logs");
    assert_eq!(logs.stderr, redacted);
    fixture.hosting.stop(&tells).await.expect("stopped");
    let logs = fixture.hosting.logs(&tells).await.expect("logs");
    assert_eq!(logs.stderr, redacted);
}

#[tokio::test(start_paused = true)]
async fn secret_arguments_reach_only_the_process() {
    let fixture = Fixture::new();
    let startup_stderr = FakeServer {
        startup_stderr: "bad --token=hunter2-secret\n",
        ..FakeServer::default()
    };
    fixture.add_program("tells", startup_stderr);
    let request = json!({
        "document": {
            "inputs": [{"id": "token", "password": true}],
            "servers": {"tells": {"command": "tells", "args": ["--token=${input:token}"]}},
        },
        "inputs": {"token": "hunter2-secret"},
    });
    let request = serde_json::from_value(request).expect("a request");
    let imported = fixture.hosting.import(request).await.expect("imported");
    assert_eq!(imported.notices, [""; 0]);
    let tells = name("tells");
    fixture.until_status(&tells, McpStatus::Connected).await;
    let main = || fixture.runtime.process("mcp-tells", "main").expect("there");
    assert_eq!(main().spec.args, ["--token=hunter2-secret"]);
    assert!(main().spec.env.is_empty(), "{:?}", main().spec.env);
    let info = fixture.hosting.get(&tells).expect("there");
    assert_eq!(info.args, ["--token=${input:token}"]);
    assert_eq!(info.env_keys, ["input:token"]);
    let logs = fixture.hosting.logs(&tells).await.expect("logs");
    assert_eq!(logs.stderr, "bad --token=[input:token]\n");
    for kept in ["servers/tells.json", "greetings/tells.json"] {
        let kept = std::fs::read_to_string(fixture.dir.path().join("mcp").join(kept));
        let kept = kept.expect("a file");
        assert!(!kept.contains("hunter2"), "{kept}");
    }
    let edit = json!({"env": {"input:token": "another"}});
    let edit = serde_json::from_value(edit).expect("an edit");
    fixture.hosting.edit(&tells, edit).await.expect("edited");
    fixture.until_status(&tells, McpStatus::Connected).await;
    assert_eq!(main().spec.args, ["--token=another"]);
}

#[tokio::test(start_paused = true)]
async fn secrets_in_server_metadata_are_redacted() {
    let fixture = Fixture::new();
    let spec = json!({"name": "tells", "command": "well", "env": {"TOLD": "hunter2-secret"}});
    let tells = fixture.add(spec.clone()).await;
    let runtime = fixture.until_status(&tells, McpStatus::Connected).await;
    let (tell, mut told) = mpsc::channel(64);
    let tried = fixture.hosting.test(spec_of(spec), tell).await;
    for runtime in [runtime, tried.expect("tested").runtime] {
        let info = runtime.server_info.expect("it said who it is");
        assert_eq!(info, json!({"name": "fake", "version": "[TOLD]"}));
        assert_eq!(runtime.tools[0].description, "tool [TOLD]");
    }
    while let Some(progress) = told.recv().await {
        let progress = serde_json::to_string(&progress).expect("JSON");
        assert!(!progress.contains("hunter2"), "{progress}");
    }
    // Later output is redacted too.
    let arguments = Map::from_iter([("code".to_owned(), json!(-32602))]);
    let refused = fixture.hosting.call(&tells, "refuse", arguments).await;
    let message = refused.expect_err("refused").to_string();
    assert!(message.contains("not with [TOLD]"), "{message}");
    let called = fixture.hosting.call(&tells, "grow", nothing()).await;
    called.expect("called");
    let grown = fixture
        .until(&tells, |runtime| runtime.tool_count == 4)
        .await;
    let shown = serde_json::to_string(&grown).expect("JSON");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn secrets_on_stdout_are_redacted_in_logs() {
    let fixture = Fixture::new();
    fixture.runtime.program("leaks", |pipes| async move {
        let token = pipes.process.spec.env["TOKEN"].clone();
        pipes.write_stdout(&format!("using {token}"));
        FakeServer::default().serve(pipes).await
    });
    let spec = json!({
        "name": "leaks", "command": "leaks", "env": {"TOKEN": "hunter2-secret"},
    });
    let leaks = fixture.add(spec).await;
    fixture.until_status(&leaks, McpStatus::Connected).await;
    // Also after the value was changed.
    let edit =
        serde_json::from_value(json!({"env": {"TOKEN": "another-secret"}})).expect("an edit");
    fixture.hosting.edit(&leaks, edit).await.expect("edited");
    fixture.until_status(&leaks, McpStatus::Connected).await;
    let lines = fixture.hosting.logs(&leaks).await.expect("logs").protocol;
    let shown = lines.iter().filter(|line| line.ends_with("using [TOKEN]"));
    assert_eq!(shown.count(), 2, "{lines:?}");
    assert!(
        lines.iter().all(|line| !line.contains("-secret")),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn removal_leaves_nothing() {
    let fixture = Fixture::new();
    let time = fixture
        .add(json!({"name": "time", "command": "well", "env": {"TOKEN": "hunter2"}}))
        .await;
    fixture.until_status(&time, McpStatus::Connected).await;
    let process = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert_eq!(fixture.entries("secrets"), 1);
    fixture.hosting.remove(&time).await.expect("removed");
    assert!(!process.is_running());
    assert_eq!(fixture.runtime.names(), [""; 0]);
    for place in ["servers", "secrets", "greetings", "cache"] {
        assert_eq!(fixture.entries(place), 0, "{place}");
    }
    assert!(matches!(
        fixture.hosting.get(&time),
        Err(HostingError::NotFound { .. })
    ));
    // The name can be used again.
    fixture.add_connected("time").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_can_be_removed_while_it_starts() {
    let fixture = Fixture::new();
    let slow = FakeServer {
        handshake_delay: std::time::Duration::from_mins(1),
        ..FakeServer::default()
    };
    fixture.add_program("slow", slow);
    let slow = fixture
        .add(json!({"name": "slow", "command": "slow"}))
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let step = fixture.runtime_of(&slow).steps.pop().expect("a step");
    assert_eq!(step.phase, McpPhase::McpInit);
    fixture.hosting.remove(&slow).await.expect("removed");
    assert_eq!(fixture.runtime.names(), [""; 0]);
    assert_eq!(fixture.runtime.names().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_can_only_be_replaced_explicitly() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    let spec = spec_of(json!({"name": "time", "command": "well", "args": ["again"]}));
    let refused = fixture.hosting.add(spec.clone(), false).await;
    assert!(
        matches!(refused, Err(HostingError::Exists { .. })),
        "{refused:?}"
    );
    fixture.hosting.add(spec, true).await.expect("replaced");
    fixture.until_status(&time, McpStatus::Connected).await;
    let process = fixture
        .runtime
        .process("mcp-time", "main")
        .expect("a process");
    assert_eq!(process.spec.args, ["again"]);
    assert_eq!(fixture.hosting.list().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn imported_servers_are_started() {
    let fixture = Fixture::new();
    fixture.add_connected("time").await;
    let request = serde_json::from_value(json!({"document": {"mcpServers": {
        "git": {"command": "well"}, "time": {"command": "well"},
        "far": {"url": "https://example.com/mcp"},
    }}}));
    let imported = fixture
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
    fixture
        .until_status(&name("git"), McpStatus::Connected)
        .await;
}

#[tokio::test(start_paused = true)]
async fn changed_tools_are_listed_again() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    fixture
        .hosting
        .call(&time, "grow", nothing())
        .await
        .expect("grown");
    let runtime = fixture
        .until(&time, |runtime| runtime.tool_count == 4)
        .await;
    assert!(runtime.tools.iter().any(|tool| tool.name == "grown"));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_servers_is_limited() {
    let fixture = Fixture::with(|settings| settings.max_servers = 1);
    fixture.add_connected("one").await;
    let two = spec_of(json!({"name": "two", "command": "well"}));
    let refused = fixture.hosting.add(two, false).await;
    assert!(
        matches!(refused, Err(HostingError::Full { .. })),
        "{refused:?}"
    );
}
