//! Failed starts, crashes and hangs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, McpPhase, McpProgress, McpStatus};
use futures_util::StreamExt as _;
use serde_json::{Map, json};
use tokio::time::Instant;

use crate::hosting::tests::{FakeServer, Fixture, name};
use crate::hosting::{BoxAvailability, ProcessExit};

#[tokio::test(start_paused = true)]
async fn a_crashing_server_has_four_attempts_after_2_4_and_8_seconds() {
    let fixture = Fixture::new();
    let fake_server = FakeServer {
        startup_stderr: "no TOKEN\n",
        ..FakeServer::with_lifetimes([Some(0)])
    };
    let runs = fake_server.runs.clone();
    fixture.add_program("doomed", fake_server);
    let began = Instant::now();
    let doomed = fixture
        .add(json!({"name": "doomed", "command": "doomed"}))
        .await;
    let pausing = fixture
        .until(&doomed, |runtime| runtime.retry_at.is_some())
        .await;
    assert_eq!(pausing.status, McpStatus::Connecting);
    assert_eq!(
        (pausing.retry_count, pausing.error_phase),
        (1, Some(McpPhase::McpInit))
    );
    let progress = fixture.hosting.progress(&doomed).expect("there");
    let progress: Vec<_> = progress.collect().await;
    let waits = progress.iter().filter_map(|progress| match progress {
        McpProgress::Waiting {
            why,
            retry_count,
            until: Some(_),
        } if why.contains("failed in mcp_init: ") && why.contains("no TOKEN") => Some(*retry_count),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [1, 2, 3], "{progress:?}");
    let failed = fixture.until_status(&doomed, McpStatus::Error).await;
    let took = began.elapsed().as_secs();
    assert!((14..20).contains(&took), "{took}");
    assert_eq!(runs.load(Ordering::Relaxed), 4);
    assert_eq!(
        (failed.retry_count, failed.error_phase),
        (4, Some(McpPhase::McpInit))
    );
    let message = failed.error_message.expect("a message");
    assert!(
        message.starts_with("Failed after 4 attempts: "),
        "{message}"
    );
    assert!(
        message.contains("exit code 3") && message.contains("no TOKEN"),
        "{message}"
    );
    assert_eq!(fixture.runtime.names(), [""; 0], "nothing is left running");
    assert_eq!(failed.box_session_id, None);
    let logs = fixture.hosting.logs(&doomed).await.expect("logs");
    let again = "--- started again ---\n";
    let attempts = ["no TOKEN\n"; 4].join(again);
    assert_eq!(logs.stderr, attempts, "each said the same");
    // Nothing happens until an explicit start.
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 4);
    fixture.hosting.start(&doomed).await.expect("started");
    fixture.until_status(&doomed, McpStatus::Error).await;
    assert_eq!(runs.load(Ordering::Relaxed), 8);
}

#[tokio::test(start_paused = true)]
async fn an_attached_process_fails_in_phase_relay_connect() {
    let fixture = Fixture::new();
    fixture
        .runtime
        .has_other_reader
        .store(true, Ordering::Relaxed);
    let time = fixture
        .add(json!({"name": "time", "command": "well"}))
        .await;
    let failed = fixture.until_status(&time, McpStatus::Error).await;
    assert_eq!(failed.error_phase, Some(McpPhase::RelayConnect));
    let message = failed.error_message.expect("a message");
    assert!(message.contains("it is already attached"), "{message}");
    assert_eq!(fixture.runtime.names(), [""; 0], "nothing is left running");
    fixture
        .runtime
        .has_other_reader
        .store(false, Ordering::Relaxed);
    fixture.hosting.start(&time).await.expect("started");
    fixture.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_names_its_phase_and_cause() {
    let fixture = Fixture::new();
    let time = fixture.add_connected("time").await;
    for (code, expected) in [
        (-32602, ErrorCode::ValidationError),
        (-32000, ErrorCode::BackendUnavailable),
    ] {
        let arguments = Map::from_iter([("code".to_owned(), json!(code))]);
        let refused = fixture.hosting.call(&time, "refuse", arguments).await;
        let refused = refused.expect_err("refused");
        assert_eq!(refused.code(), expected, "{refused}");
        assert_eq!(refused.phase(), Some(McpPhase::ToolCall));
        assert!(refused.to_string().contains(&code.to_string()), "{refused}");
    }
    let arguments = Map::from_iter([("seconds".to_owned(), json!(7200))]);
    let late = fixture.hosting.call(&time, "wait", arguments).await;
    let late = late.expect_err("too slow");
    assert_eq!(late.code(), ErrorCode::Timeout, "{late}");
    assert_eq!(late.phase(), Some(McpPhase::ToolCall));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out_in_phase_mcp_init() {
    let fixture = Fixture::new();
    let unresponsive = FakeServer {
        stops_responding_after: Some(Duration::ZERO),
        ..FakeServer::default()
    };
    fixture.add_program("deaf", unresponsive);
    let settings = json!({"startup_timeout_sec": 5});
    let unresponsive = fixture
        .add(json!({"name": "deaf", "command": "deaf", "box": settings}))
        .await;
    let began = Instant::now();
    let waiting = fixture
        .hosting
        .server(&unresponsive)
        .await
        .err()
        .expect("no server");
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(waiting.phase(), Some(McpPhase::McpInit), "{waiting}");
    let failed = fixture.until_status(&unresponsive, McpStatus::Error).await;
    let took = began.elapsed().as_secs();
    assert!(
        (34..40).contains(&took),
        "four times five seconds and the pauses: {took}"
    );
    let message = failed.error_message.expect("a message");
    assert!(
        message.contains("Connection timeout after 5 seconds"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_healthy_minute_resets_failures() {
    let fixture = Fixture::new();
    let fake_server =
        FakeServer::with_lifetimes([Some(0), Some(0), Some(61), Some(61), Some(61), None]);
    let runs = fake_server.runs.clone();
    fixture.add_program("frail", fake_server);
    let frail = fixture
        .add(json!({"name": "frail", "command": "frail"}))
        .await;
    fixture
        .until(&frail, |runtime| {
            runtime.status == McpStatus::Connected && runtime.retry_count == 2
        })
        .await;
    fixture
        .until(&frail, |runtime| {
            runtime.status == McpStatus::Connected && runtime.retry_count == 0
        })
        .await;
    let ended = fixture
        .until(&frail, |runtime| runtime.retry_at.is_some())
        .await;
    assert_eq!(ended.retry_count, 1, "it counts reinstalls");
    assert_eq!(ended.error_phase, Some(McpPhase::Runtime));
    let message = ended.error_message.expect("a message");
    assert!(
        message.starts_with("Box managed process exited unexpectedly"),
        "{message}"
    );
    fixture
        .until(&frail, |runtime| {
            runtime.status == McpStatus::Connected && runs.load(Ordering::Relaxed) == 6
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn six_exits_within_five_minutes_are_a_crash_loop() {
    let fixture = Fixture::new();
    let fake_server = FakeServer::with_lifetimes([0, 0, 0, 61, 0, 0, 0].map(Some));
    let runs = fake_server.runs.clone();
    fixture.add_program("loops", fake_server);
    let loops = fixture
        .add(json!({"name": "loops", "command": "loops"}))
        .await;
    let failed = fixture.until_status(&loops, McpStatus::Error).await;
    let message = failed.error_message.expect("a message");
    assert!(
        message.starts_with("The server exited 6 times"),
        "{message}"
    );
    assert_eq!(runs.load(Ordering::Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn a_server_starts_once_boxes_become_available() {
    let fixture = Fixture::new();
    fixture.runtime.set_availability(BoxAvailability::Disabled);
    let time = fixture
        .add(json!({"name": "time", "command": "well"}))
        .await;
    let refused = fixture.until_status(&time, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::BoxUnavailable));
    assert_eq!(
        refused.error_message.as_deref(),
        Some("box_disabled_in_config")
    );
    assert_eq!((refused.retry_count, refused.box_session_id), (0, None));
    let error = fixture
        .hosting
        .server(&time)
        .await
        .err()
        .expect("no server");
    assert!(
        error.phase() == Some(McpPhase::BoxUnavailable)
            && error.code() == ErrorCode::BackendUnavailable,
        "{error:?}"
    );
    fixture
        .runtime
        .set_availability(BoxAvailability::Unavailable {
            message: "no user namespaces".to_owned(),
            hint: Some("turn them on".to_owned()),
        });
    let refused = fixture
        .until(&time, |runtime| {
            runtime.error_message.as_deref() == Some("box_unavailable")
        })
        .await;
    assert_eq!(
        refused.hint.as_deref(),
        Some("no user namespaces: turn them on")
    );
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fixture.runtime.created.load(Ordering::Relaxed), 0);
    assert_eq!(fixture.runtime_of(&time).retry_count, 0);
    fixture.runtime.set_availability(BoxAvailability::Ready);
    fixture.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn policy_denials_are_not_retried() {
    let fixture = Fixture::new();
    fixture.runtime.refuses(Some(BoxesError {
        code: ErrorCode::Forbidden,
        message: "the profile has no network".to_owned(),
        hint: Some("choose another profile".to_owned()),
        reached: true,
    }));
    let time = fixture
        .add(json!({"name": "time", "command": "well"}))
        .await;
    let refused = fixture.until_status(&time, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::SessionCreate));
    assert_eq!(
        refused.error_message.as_deref(),
        Some("the profile has no network")
    );
    assert_eq!(refused.hint.as_deref(), Some("choose another profile"));
    assert_eq!(refused.retry_count, 1);
    // An edit may have fixed it.
    fixture.runtime.refuses(None);
    let edit = serde_json::from_value(json!({"box": {"profile": "online"}})).expect("an edit");
    fixture.hosting.edit(&time, edit).await.expect("edited");
    fixture.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn the_existence_of_forbidden_directories_is_not_revealed() {
    let fixture = Fixture::new();
    let message = "host_path is outside allowed_mount_roots";
    fixture.runtime.refuses(Some(BoxesError {
        code: ErrorCode::Forbidden,
        message: message.to_owned(),
        hint: None,
        reached: true,
    }));
    let (existing, missing) = (
        fixture.dir.path().to_owned(),
        fixture.dir.path().join("missing"),
    );
    for (name, path) in [("there", existing), ("missing", missing)] {
        let spec = json!({"name": name, "command": "well", "box": {"host_path": path}});
        let server = fixture.add(spec).await;
        let refused = fixture.until_status(&server, McpStatus::Error).await;
        assert_eq!(refused.error_phase, Some(McpPhase::SessionCreate));
        assert_eq!(refused.error_message.as_deref(), Some(message), "{name}");
        assert_eq!(refused.hint, None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn three_unanswered_pings_restart_a_server() {
    let fixture = Fixture::new();
    let fake_server = FakeServer {
        stops_responding_after: Some(Duration::from_secs(100)),
        ..FakeServer::default()
    };
    fixture.add_program("deafens", fake_server);
    let deafens = fixture
        .add(json!({"name": "deafens", "command": "deafens"}))
        .await;
    fixture.until_status(&deafens, McpStatus::Connected).await;
    let began = Instant::now();
    let broken = fixture
        .until(&deafens, |runtime| runtime.retry_at.is_some())
        .await;
    let took = began.elapsed().as_secs();
    assert!((160..220).contains(&took), "{took}");
    assert_eq!(broken.error_phase, Some(McpPhase::Runtime));
    let message = broken.error_message.expect("a message");
    assert!(message.contains("3 pings"), "{message}");
    fixture.until_status(&deafens, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_may_ignore_pings() {
    let fixture = Fixture::new();
    let busy = fixture.add_connected("busy").await;
    let process = fixture
        .runtime
        .process("mcp-busy", "main")
        .expect("a process");
    let arguments = json!({"seconds": 240})
        .as_object()
        .cloned()
        .expect("an object");
    let result = fixture.hosting.call(&busy, "wait", arguments).await;
    assert!(result.expect("a result").get().contains("waited"));
    assert!(process.is_running());
    assert_eq!(fixture.runtime_of(&busy).retry_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_client_is_not_removed() {
    let fixture = Fixture::new();
    fixture.runtime.occupy("mcp-theirs");
    let shared = fixture
        .add(json!({"name": "theirs", "command": "well"}))
        .await;
    let refused = fixture.until_status(&shared, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::SessionCreate));
    assert!(
        refused
            .hint
            .is_some_and(|hint| hint.contains("boxwood rm mcp-theirs"))
    );
    fixture
        .hosting
        .remove(&name("theirs"))
        .await
        .expect("removed");
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_backend_is_not_retried() {
    let fixture = Fixture::new();
    fixture.runtime.refuses(Some(BoxesError {
        code: ErrorCode::BackendUnavailable,
        message: "the engine does not answer".to_owned(),
        hint: None,
        reached: true,
    }));
    let time = fixture
        .add(json!({"name": "time", "command": "well"}))
        .await;
    let refused = fixture.until_status(&time, McpStatus::Error).await;
    assert_eq!(refused.error_phase, Some(McpPhase::BoxUnavailable));
    assert_eq!(refused.error_message.as_deref(), Some("box_unavailable"));
    assert_eq!(refused.hint.as_deref(), Some("the engine does not answer"));
    assert_eq!(refused.retry_count, 0);
    fixture.runtime.refuses(None);
    fixture.until_status(&time, McpStatus::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_program_fails_in_phase_process_start() {
    let fixture = Fixture::new();
    fixture.runtime.program("lacking", |_| async {
        ProcessExit {
            exit_code: Some(127),
            why: None,
        }
    });
    let lacking = fixture
        .add(json!({"name": "lacking", "command": "lacking"}))
        .await;
    let failed = fixture.until_status(&lacking, McpStatus::Error).await;
    assert_eq!(failed.error_phase, Some(McpPhase::ProcessStart));
    assert_eq!(failed.retry_count, 2);
}

#[tokio::test(start_paused = true)]
async fn an_exit_before_attaching_is_reported_like_one_after() {
    for attach_takes in [Duration::ZERO, Duration::from_secs(1)] {
        let fixture = Fixture::new();
        *fixture.runtime.attach_takes.lock().expect("no panic") = attach_takes;
        for (name, exit_code) in [("broken", 3), ("lacking", 127)] {
            fixture.runtime.program(name, move |_| async move {
                ProcessExit::new(Some(exit_code), None)
            });
        }
        let broken = fixture.add(json!({"name": "broken", "command": "broken"}));
        let broken = fixture.until_status(&broken.await, McpStatus::Error).await;
        assert_eq!(broken.error_phase, Some(McpPhase::McpInit));
        let said = "Failed after 4 attempts: the server exited with exit code 3 before the handshake completed";
        assert_eq!(broken.error_message.as_deref(), Some(said));
        let lacking = fixture.add(json!({"name": "lacking", "command": "lacking"}));
        let lacking = fixture.until_status(&lacking.await, McpStatus::Error).await;
        assert_eq!(lacking.error_phase, Some(McpPhase::ProcessStart));
    }
}
